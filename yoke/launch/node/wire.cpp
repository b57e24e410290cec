#include "yoke/launch/node/wire.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"

namespace yoke::launch {

using nlohmann::json;

namespace {

/// Clocks of hosts that differ by less are taken for equal, because a message may have waited for so long.
constexpr std::chrono::seconds kSameClock{10};

int64_t seconds_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::floor<std::chrono::seconds>(now).count();
}

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodePlace, node_rank, num_nodes, first_rank, world_size, first_role_rank,
                                   role_world_size, restart_count, master_addr, master_port, agent_serves_store,
                                   is_elastic, has_spares, first_replacement)

json to_json(const NodePlace& place) { return place; }

NodePlace to_place(const json& from) { return from.get<NodePlace>(); }

json to_json(const NodeEvent& event) {
  json result = {{"kind", static_cast<int>(event.kind)},
                 {"rank", event.rank},
                 {"pid", event.pid},
                 {"value", event.value},
                 {"text", event.text}};
  if (event.report) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(event.report->time.time_since_epoch());
    result["report"] = {{"message", event.report->message},
                        {"traceback", event.report->traceback},
                        {"time", seconds.count()},
                        {"sent_at", seconds_now()},
                        {"content", event.report->content},
                        {"cause",
                         {{"ranks", event.report->cause.ranks},
                          {"what", event.report->cause.what},
                          {"kind", static_cast<int>(event.report->cause.kind)}}}};
  }
  if (event.num_steps) result["num_steps"] = *event.num_steps;
  if (event.kept_step) result["kept_step"] = *event.kept_step;
  if (!event.last_line.empty()) result["last_line"] = event.last_line;
  if (event.info) {
    result["info"] = {{"protocol", kProtocol},
                      {"host", event.info->host},
                      {"address", event.info->address},
                      {"num_ranks", event.info->num_ranks},
                      {"node_rank", event.info->node_rank.value_or(-1)},
                      {"role", event.info->role},
                      {"nnodes", event.info->nnodes},
                      {"max_restarts", event.info->restarts.num},
                      {"restart_steps", event.info->restarts.num_steps},
                      {"replacements", event.info->replacements},
                      {"num_spares", event.info->num_spares},
                      {"is_return", event.info->is_return}};
  }
  return result;
}

NodeEvent to_event(const json& from) {
  NodeEvent event{.kind = NodeEvent::Kind{from.at("kind").get<int>()},
                  .rank = from.at("rank"),
                  .pid = from.at("pid"),
                  .value = from.at("value"),
                  .text = from.at("text")};
  if (event.kind < NodeEvent::Kind::kReady || event.kind > NodeEvent::Kind::kLost) {
    throw Error(ErrorCode::kInvalidArgument, "it sent an event of a kind that this yoke does not know");
  }
  if (const auto report = from.find("report"); report != from.end()) {
    std::chrono::seconds time(report->at("time").get<int64_t>());
    // The clock of the sender may be hours off. A report without a time keeps that of 1970.
    const std::chrono::seconds ahead(report->at("sent_at").get<int64_t>() - seconds_now());
    if (time.count() > 0 && std::chrono::abs(ahead) > kSameClock) time -= ahead;
    const auto& cause = report->at("cause");
    event.report = {.message = report->at("message"),
                    .traceback = report->at("traceback"),
                    .time = std::chrono::system_clock::time_point(time),
                    .content = report->value("content", ""),
                    .cause = {.ranks = cause.at("ranks").get<std::vector<int64_t>>(),
                              .what = cause.at("what"),
                              .kind = FailureCause::Kind{cause.at("kind").get<int>()}}};
  }
  if (const auto num_steps = from.find("num_steps"); num_steps != from.end()) event.num_steps = *num_steps;
  if (const auto kept_step = from.find("kept_step"); kept_step != from.end()) event.kept_step = *kept_step;
  event.last_line = from.value("last_line", "");
  if (const auto info = from.find("info"); info != from.end()) {
    if (const int protocol = info->at("protocol"); protocol != kProtocol) {
      throw Error(ErrorCode::kInvalidArgument,
                  "it uses version {} of yoke's protocol, but this host uses version {}; "
                  "install the same yoke on both",
                  protocol, kProtocol);
    }
    event.info = {.host = info->at("host"),
                  .address = info->at("address"),
                  .num_ranks = info->at("num_ranks"),
                  .role = info->at("role"),
                  .nnodes = info->value("nnodes", ""),
                  .restarts = {info->value("max_restarts", int64_t{0}), info->value("restart_steps", int64_t{0})},
                  .replacements = info->value("replacements", int64_t{0}),
                  .num_spares = info->value("num_spares", int64_t{0}),
                  .is_return = info->value("is_return", false)};
    if (const int64_t rank = info->at("node_rank"); rank >= 0) event.info->node_rank = rank;
    constexpr int64_t kMaxRanks = 65'536;
    if (event.info->num_ranks < 1 || event.info->num_ranks > kMaxRanks) {
      throw Error(ErrorCode::kInvalidArgument, "it reports {} ranks; a node has 1 to 65536", event.info->num_ranks);
    }
  }
  return event;
}

}  // namespace yoke::launch
