#include "yoke/cluster/allocation.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <tuple>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/host.h"
#include "yoke/base/json.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/cluster/token.h"

namespace yoke::cluster {
namespace {

constexpr int kFormat = 1;
constexpr size_t kMaxFileBytes = 16 << 20;
constexpr size_t kMaxAllocationName = 64;
constexpr size_t kNameSize = 16;  ///< Of the files, without their ends.
constexpr std::chrono::hours kKeepLogs{14 * 24};
constexpr const char *kFileEnd = ".json", *kRequestEnd = ".request.json", *kLogEnd = ".log";

/// "NAME" of NAME.json, NAME.request.json and NAME.log.
std::string stem_of(const std::filesystem::path& file) {
  const auto name = file.filename().string();
  return name.substr(0, name.find('.'));
}

/// The file beside `file` with another end.
std::filesystem::path sibling(const std::filesystem::path& file, const char* end) {
  return file.parent_path() / (stem_of(file) + end);
}

void remove_files(const std::filesystem::path& file) {
  for (const auto* end : {kFileEnd, kRequestEnd, kLogEnd}) unlink(sibling(file, end).c_str());
}

std::filesystem::path kept_log_of(const Allocation& allocation) {
  const bool has_cluster = !allocation.cluster.empty() && allocation.cluster.find('/') == std::string::npos;
  return allocation.file.parent_path() / (allocation.job + (has_cluster ? "." + allocation.cluster : "") + kLogEnd);
}

/// The logs of allocations that have ended.
std::vector<std::filesystem::path> kept_logs(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> logs;
  for (const auto& file : entries_of(folder)) {
    // Names of other logs are 16 digits of a token.
    const auto job = stem_of(file);
    if (file.extension() == kLogEnd && job.size() < kNameSize && parse_int(job)) logs.push_back(file);
  }
  return logs;
}

std::string listed(const std::vector<const Allocation*>& allocations) {
  std::string text;
  for (const auto* one : allocations) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", one->job);
    if (!one->name.empty()) text += fmt::format(" ({})", printable(one->name));
  }
  return text;
}

}  // namespace

void check_allocation_name(std::string_view name) {
  const auto is_allowed = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
  };
  if (!name.empty() && name.size() <= kMaxAllocationName && name.front() != '-' && name != "last" &&
      std::ranges::all_of(name, is_allowed) && !std::ranges::all_of(name, is_digit)) {
    return;
  }
  throw Error(ErrorCode::kInvalidArgument,
              "--name {}: give up to 64 letters, digits, '.', '_' and '-' that are not a number and not `last`",
              printable(name.substr(0, 80)));
}

std::string to_text(const Allocation& allocation) {
  const auto to_json = [](const AllocationNode& node) {
    return Json{{"name", node.name},
                {"address", node.address},
                {"port", node.port},
                {"gpus", node.num_gpus},
                {"cpus", node.num_cpus}};
  };
  return json_page(Json{{"format", kFormat},
                        {"job", allocation.job},
                        {"name", allocation.name},
                        {"secret", allocation.secret},
                        {"yoke", allocation.yoke},
                        {"until", allocation.until},
                        {"cluster", allocation.cluster},
                        {"nodes", json_list(allocation.nodes, to_json)}});
}

Allocation parse_allocation(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    if (json.at("format").get<int>() != kFormat) {
      throw Error(ErrorCode::kDataLoss, "it is of another version of yoke");
    }
    Allocation result{.job = json.at("job"),
                      .name = json.at("name"),
                      .secret = json.at("secret"),
                      .yoke = json.at("yoke"),
                      .until = json.at("until"),
                      .cluster = json.value("cluster", "")};
    for (const auto& node : json.at("nodes")) {
      result.nodes.push_back({node.at("name"), node.at("address"), node.at("port"), node.at("gpus"), node.at("cpus")});
    }
    return result;
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kDataLoss, "it does not describe an allocation: {}", error.what());
  }
}

const Allocation& choose_allocation(const std::vector<Allocation>& allocations, const std::string& name) {
  std::vector<const Allocation*> all, meant;
  for (const auto& one : allocations) {
    all.push_back(&one);
    if (name.empty() || name == "last" || one.job == name || one.name == name) meant.push_back(&one);
  }
  if (meant.size() == 1) return *meant.front();
  if (all.empty()) {
    throw Error(ErrorCode::kNotFound, "you hold no allocation{}; `yoke alloc -N 2 --time 1h` gets one",
                name.empty() ? "" : fmt::format(" {}", printable(name)));
  }
  if (meant.empty()) {
    throw Error(ErrorCode::kNotFound, "you hold no allocation {}, but these: {}", printable(name), listed(all));
  }
  throw Error(ErrorCode::kInvalidArgument, "{} allocations are meant; name one by its job: {}", meant.size(),
              listed(meant));
}

void check_node(const Allocation& allocation, const std::string& name) {
  std::string all;
  for (const auto& node : allocation.nodes) {
    if (node.name == name) return;
    all += (all.empty() ? "" : ", ") + node.name;
  }
  throw Error(ErrorCode::kNotFound, "{} is no node of allocation {}; it has {}", printable(name), allocation.job, all);
}

std::filesystem::path allocation_folder(const Environment& environment) {
  if (const auto state = user_folder(UserFolder::kState, environment)) return *state / "yoke" / "alloc";
  throw Error(ErrorCode::kFailedPrecondition,
              "HOME is not set, so there is no folder for what is known about allocations; set HOME");
}

std::filesystem::path new_allocation_file(const Environment& environment) {
  const auto folder = allocation_folder(environment);
  make_private_folder(folder, ", because secrets of allocations are in it");
  std::error_code error;
  const auto oldest = std::filesystem::file_time_type::clock::now() - kKeepLogs;
  for (const auto& log : kept_logs(folder)) {
    if (last_write_time(log, error) < oldest && !error) unlink(log.c_str());
  }
  return folder / (new_token().substr(0, kNameSize) + kFileEnd);
}

void write_allocation(const Allocation& allocation) { replace_file(allocation.file, to_text(allocation), 0600); }

std::optional<Allocation> read_allocation(const std::filesystem::path& file) {
  struct stat status {};
  if (lstat(file.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ESTALE) return std::nullopt;
    throw system_error(errno, "reading " + file.string());
  }
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
    throw Error(ErrorCode::kFailedPrecondition,
                "{} holds the secret of an allocation, so it must be yours and readable by nobody else: delete it",
                file.string());
  }
  try {
    auto result = parse_allocation(read_regular_file(file, kMaxFileBytes));
    result.file = file;
    return result;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) return std::nullopt;
    throw Error(error.code(), "{}: {}", file.string(), error.what());
  }
}

std::filesystem::path request_file(const std::filesystem::path& file) { return sibling(file, kRequestEnd); }
std::filesystem::path log_file(const std::filesystem::path& file) { return sibling(file, kLogEnd); }

void remove_allocation(const Allocation& allocation) {
  remove_files(allocation.file);
  if (!allocation.job.empty()) unlink(kept_log_of(allocation).c_str());
}

void end_allocation(const Allocation& allocation) {
  const auto log = log_file(allocation.file);
  std::error_code ignored;
  if (!allocation.job.empty() && std::filesystem::file_size(log, ignored) > 0 && !ignored) {
    rename(log.c_str(), kept_log_of(allocation).c_str());
  }
  remove_files(allocation.file);
}

std::optional<std::filesystem::path> kept_log(const std::string& job, const Environment& environment) {
  std::optional<std::filesystem::path> newest;
  for (const auto& log : kept_logs(allocation_folder(environment))) {
    if (stem_of(log) != job) continue;
    std::error_code ignored;
    if (!newest || last_write_time(log, ignored) > last_write_time(*newest, ignored)) newest = log;
  }
  return newest;
}

std::vector<Allocation> list_allocations(const Environment& environment) {
  std::vector<Allocation> result;
  for (const auto& file : entries_of(allocation_folder(environment))) {
    if (file.extension() != kFileEnd) continue;
    try {
      auto one = read_allocation(file);
      if (one && !one->job.empty()) result.push_back(std::move(*one));
    } catch (const Error&) {  // a file of another version, or one that is not the user's
    }
  }
  std::ranges::sort(result, [](const auto& a, const auto& b) {
    const auto rank = [](const Allocation& one) {
      return std::tuple(one.job.size(), one.job, one.cluster, !one.is_ready(), one.secret.empty());
    };
    return rank(a) < rank(b);
  });
  // Keeps the one that has nodes, with agents if there are.
  const auto same = std::ranges::unique(
      result, [](const auto& a, const auto& b) { return a.job == b.job && a.cluster == b.cluster; });
  result.erase(same.begin(), same.end());
  return result;
}

}  // namespace yoke::cluster
