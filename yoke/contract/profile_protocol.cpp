#include "yoke/contract/profile_protocol.h"

#include "yoke/base/json.h"
#include "yoke/base/json_text.h"

namespace yoke {
namespace {

/// Calls `read(json)`. Returns nullopt if the line or a member is not as expected.
template <class Read>
auto parse_line(std::string_view line, Read read) -> std::optional<decltype(read(SortedJson()))> {
  try {
    return read(SortedJson::parse(line));
  } catch (const SortedJson::exception&) {
    return std::nullopt;
  }
}

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProfileHello, rank, world_size, local_world_size, pid, start_ticks, attempt,
                                   num_steps)

std::string to_line(const ProfileHello& hello) { return json_line(SortedJson(hello)); }

std::string to_line(const ProfileRequest& request) {
  const auto* detail = request.detail == ProfileDetail::kAnnotations ? "annotations"
                       : request.detail == ProfileDetail::kShapes    ? "shapes"
                                                                     : "operations";
  return json_line(SortedJson{{"folder", request.folder},
                              {"first", request.first},
                              {"warmup", request.warmup},
                              {"active", request.active},
                              {"detail", detail}});
}

std::string to_line(const ProfileNews& news) {
  if (news.trace) return json_line(SortedJson{{"trace", *news.trace}});
  if (news.failure) return json_line(SortedJson{{"failure", *news.failure}});
  return json_line(SortedJson{{"num_steps", news.num_steps.value_or(0)}});
}

std::optional<ProfileHello> parse_hello(std::string_view line) {
  auto hello = parse_line(line, [](const SortedJson& json) { return json.get<ProfileHello>(); });
  const bool is_sane = hello && hello->rank >= 0 && hello->rank < hello->world_size && hello->local_world_size > 0 &&
                       hello->local_world_size <= hello->world_size;
  return is_sane ? hello : std::nullopt;
}

std::optional<ProfileRequest> parse_request(std::string_view line) {
  return parse_line(line, [](const SortedJson& json) {
    const auto detail = json.at("detail").get<std::string>();
    return ProfileRequest{.folder = json.at("folder"),
                          .first = json.at("first"),
                          .warmup = json.at("warmup"),
                          .active = json.at("active"),
                          .detail = detail == "annotations" ? ProfileDetail::kAnnotations
                                    : detail == "shapes"    ? ProfileDetail::kShapes
                                                            : ProfileDetail::kOperations};
  });
}

std::optional<ProfileNews> parse_news(std::string_view line) {
  return parse_line(line, [](const SortedJson& json) {
    if (json.contains("trace")) return ProfileNews{.trace = json["trace"].get<std::string>()};
    if (json.contains("failure")) return ProfileNews{.failure = json["failure"].get<std::string>()};
    return ProfileNews{.num_steps = json.at("num_steps").get<int64_t>()};
  });
}

}  // namespace yoke
