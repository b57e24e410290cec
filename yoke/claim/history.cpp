#include "yoke/claim/history.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "yoke/base/error.h"
#include "yoke/base/moment.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/claim/detail/json_fields.h"
#include "yoke/claim/detail/survey.h"
#include "yoke/contract/variables.h"

namespace yoke::claim {
namespace {

constexpr std::string_view kHistoryPrefix = "yoke-history-";
constexpr size_t kMostFileBytes = 256 << 10, kMostFiles = 8;  // of a user; about 10,000 claims
constexpr size_t kMostDevices = 128;

/// A time that a user wrote; nullopt: there is none, or it is in the future.
std::optional<Time> past_time(const SortedJson& line, const char* key, Time now) {
  const auto seconds = number_in(line, key, 0, seconds_since_epoch(now));
  return seconds ? std::optional(Time(std::chrono::seconds(*seconds))) : std::nullopt;
}

std::optional<Use> parse_begin(const SortedJson& line, int64_t uid, Time now) {
  const auto since = past_time(line, "since", now);
  const auto keys = keys_in(line, kMostDevices);
  if (!since || !keys || keys->empty()) return std::nullopt;
  return Use{.uid = uid, .claim = line["claim"].get<std::string>(), .keys = *keys, .since = *since};
}

/// The moment at which the machine was started.
Time started_at() {
  timespec up{};
  clock_gettime(CLOCK_BOOTTIME, &up);
  return std::chrono::system_clock::now() - std::chrono::seconds(up.tv_sec);
}

std::string history_beginning() { return fmt::format("{}{}-", kHistoryPrefix, geteuid()); }

/// The files of this user, oldest first.
std::vector<std::string> own_files(const LockFolder& folder) {
  auto names = folder.names(history_beginning());
  std::erase_if(names, [&](const std::string& name) {
    struct stat status {};
    return !folder.open_existing(name, 0, &status) || status.st_uid != geteuid();
  });
  return names;
}

bool append(const LockFolder& folder, const std::string& file, const std::string& text, bool is_limited) {
  struct stat status {};
  const auto fd = folder.open_existing(file, O_WRONLY | O_APPEND, &status);
  if (!fd || status.st_uid != geteuid()) return false;
  if (is_limited &&
      (static_cast<size_t>(status.st_size) + text.size() > kMostFileBytes / 2 || written_at(status) < started_at()))
    return false;
  return write(fd->value(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace

std::optional<int64_t> idle_seconds_of(const Note& note) {
  if (!note.activity || note.keys.empty()) return std::nullopt;
  return note.activity->idle_device_seconds / static_cast<int64_t>(note.keys.size());
}

std::string begin_text(const Use& use) {
  const SortedJson line = {{"claim", use.claim}, {"keys", use.keys}, {"since", seconds_since_epoch(use.since)}};
  return "\n" + line.dump() + "\n";
}

std::string end_text(const std::string& claim, Time end, const std::optional<int64_t>& idle_seconds) {
  SortedJson line = {{"claim", claim}, {"end", seconds_since_epoch(end)}};
  line["idle_seconds"] = idle_seconds ? SortedJson(*idle_seconds) : SortedJson();
  return "\n" + line.dump() + "\n";
}

std::vector<Use> parse_history(int64_t uid, const std::vector<HistoryText>& files, Time now) {
  std::vector<Use> uses;
  std::map<std::string, size_t> position;
  for (const auto& file : files) {
    for (const auto text : lines_of(file.text)) {
      if (text.empty()) continue;
      const auto line = SortedJson::parse(text, nullptr, false);
      if (!line.is_object() || !line.contains("claim") || !line["claim"].is_string()) continue;
      const auto claim = line["claim"].get<std::string>();
      if (auto use = parse_begin(line, uid, now)) {
        if (!position.emplace(claim, uses.size()).second) continue;
        use->last_sign = std::clamp(file.written, use->since, std::max(now, use->since));
        uses.push_back(std::move(*use));
        continue;
      }
      const auto end = past_time(line, "end", now);
      const auto known = position.find(claim);
      if (!end || known == position.end()) continue;
      auto& use = uses[known->second];
      if (use.end) continue;
      use.end = std::max(*end, use.since);
      const auto idle = line.find("idle_seconds");
      if (idle == line.end() || !idle->is_number_unsigned()) continue;
      const auto length = std::chrono::duration_cast<std::chrono::seconds>(*use.end - use.since).count();
      use.idle_seconds = static_cast<int64_t>(std::min(idle->get<uint64_t>(), static_cast<uint64_t>(length)));
    }
  }
  return uses;
}

std::optional<std::string> append_begin(const LockFolder& folder, const Use& use) {
  const auto text = begin_text(use);
  auto files = own_files(folder);
  if (!files.empty() && append(folder, files.back(), text, true)) return files.back();
  try {
    auto name = fmt::format("{}{:010x}-{}", history_beginning(), seconds_since_epoch(use.since), random_digits(8));
    folder.create(name);
    if (!append(folder, name, text, false)) {
      folder.remove(name);
      return std::nullopt;
    }
    for (size_t i = 0; i + kMostFiles < files.size() + 1; ++i) folder.remove(files[i]);
    return name;
  } catch (const Error&) {  // the disk is full
    return std::nullopt;
  }
}

bool append_end(const LockFolder& folder, const std::string& file, const std::string& claim, Time end,
                const std::optional<int64_t>& idle_seconds) noexcept try {
  return append(folder, file, end_text(claim, end, idle_seconds), false);
} catch (...) {  // out of memory
  return false;
}

std::optional<std::string> newest_history_file(const LockFolder& folder) {
  const auto files = own_files(folder);
  return files.empty() ? std::nullopt : std::optional(files.back());
}

std::vector<Use> read_history(const LockFolder& folder, Time now) {
  std::map<int64_t, std::vector<HistoryText>> files;
  for (const auto& name : folder.names(kHistoryPrefix)) {
    const auto fd = folder.open_existing(name);
    struct stat status {};
    if (!fd || fstat(fd->value(), &status) != 0 || uid_in(name, kHistoryPrefix) != int64_t{status.st_uid}) continue;
    auto& of_user = files[status.st_uid];
    if (of_user.size() >= kMostFiles) continue;
    of_user.push_back({read_beginning(fd->value(), kMostFileBytes).value_or(""), written_at(status)});
  }
  std::vector<Use> uses;
  for (const auto& [uid, texts] : files) {
    for (auto& use : parse_history(uid, texts, now)) uses.push_back(std::move(use));
  }
  return uses;
}

std::optional<LockFolder> find_history_folder(const SiteConfig& config, const Environment& environment) {
  if (!config.history_directory) return std::nullopt;
  // Who names the folder of locks by YOKE_CLAIM_DIR may name this one, too, with YOKE_SITE_CONFIG.
  const auto owner =
      environment.contains(variable::kClaimDir) ? LockFolder::Owner::kRootOrSelf : LockFolder::Owner::kRoot;
  try {
    return LockFolder(*config.history_directory, owner);
  } catch (const Error& error) {
    throw Error(error.code(),
                "history_directory is {}, which is no folder of root's with mode 1777 ({}); as root, make one for "
                "this alone, such as `install -d -m 1777 /var/lib/yoke`, and name it in the configuration",
                config.history_directory->string(), name(error.code()));
  }
}

}  // namespace yoke::claim
