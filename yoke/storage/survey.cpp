#include "yoke/storage/survey.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "yoke/base/clock.h"
#include "yoke/base/fields.h"
#include "yoke/base/file.h"

namespace yoke::storage {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlock = int64_t{4} << 20, kMostMeasured = int64_t{512} << 20, kLeastFree = int64_t{4} << 30;

/// `is_of_user`: the path has the user's name. A folder there that another user made must not be taken for it, even if
/// all may write into it.
RootCondition condition_of(const std::string& path, uid_t uid, bool is_of_user) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return RootCondition::kAbsent;
    throw system_error(errno, path);
  }
  // A link to a folder is fine where the administrator made it.
  if (S_ISLNK(status.st_mode) && (status.st_uid == 0 || status.st_uid == uid)) {
    if (stat(path.c_str(), &status) != 0) throw system_error(errno, path);
  }
  if (!S_ISDIR(status.st_mode)) return RootCondition::kNotAFolder;
  const bool is_trusted = !is_of_user || status.st_uid == 0;
  const bool is_own = status.st_uid == uid || (is_trusted && access(path.c_str(), W_OK) == 0);
  return is_own ? RootCondition::kThere : RootCondition::kForeign;
}

/// The folder of the file system that has a path, or would have it.
fs::path existing_part(const fs::path& path) {
  auto there = path;
  while (!fs::exists(there) && there.has_relative_path()) there = there.parent_path();
  return there;
}

/// What survey() asks about a path, in a child.
std::string look_at(const std::string& path, bool is_of_user) {
  const auto condition = condition_of(path, geteuid(), is_of_user);
  const auto there = existing_part(path);
  struct statvfs space {};
  if (statvfs(there.c_str(), &space) != 0) throw system_error(errno, there.string());
  const auto block = static_cast<int64_t>(space.f_frsize);
  return FieldWriter()
      .add(static_cast<int64_t>(condition))
      .add(fs::canonical(there).string())
      .add(static_cast<int64_t>(space.f_bavail) * block)
      .add(static_cast<int64_t>(space.f_blocks) * block)
      .bytes();
}

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

/// Moves blocks for about a second, and returns the bytes and the seconds.
template <class Move>
std::pair<int64_t, double> for_a_second(int64_t most, const Move& move) {
  const auto begin = Clock::now();
  int64_t bytes = 0;
  while (bytes < most && Clock::now() - begin < std::chrono::seconds(1)) {
    const ssize_t count = move(bytes);
    if (count < 0) throw system_error(errno, "measuring");
    if (count == 0) break;
    bytes += count;
  }
  return {bytes, Seconds(Clock::now() - begin).count()};
}

std::string measure_in(const std::string& path) {
  bool is_direct = true;
  UniqueFd file(open(path.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600));
  if (!file && errno == EINVAL) {
    is_direct = false;
    file = UniqueFd(open(path.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  }
  if (!file) throw system_error(errno, fmt::format("a file without a name in {}", path));
  const std::unique_ptr<void, FreeMemory> block(std::aligned_alloc(4096, kBlock));
  auto* const bytes = static_cast<unsigned char*>(block.get());
  for (int64_t at = 0; at < kBlock;) {  // disks and file systems that compress should find nothing to compress
    const ssize_t count = getrandom(bytes + at, static_cast<size_t>(std::min<int64_t>(kBlock - at, 1 << 20)), 0);
    if (count > 0) at += count;
  }
  const auto begin = Clock::now();
  const auto [written, ignored] =
      for_a_second(kMostMeasured, [&](int64_t at) { return pwrite(file.value(), bytes, kBlock, at); });
  if (fdatasync(file.value()) != 0) throw system_error(errno, "measuring");
  const double write_s = Seconds(Clock::now() - begin).count();
  posix_fadvise(file.value(), 0, 0, POSIX_FADV_DONTNEED);
  const auto [read_bytes, read_s] =
      for_a_second(written, [&](int64_t at) { return pread(file.value(), bytes, kBlock, at); });
  return FieldWriter()
      .add(static_cast<int64_t>(static_cast<double>(written) / write_s))
      .add(static_cast<int64_t>(static_cast<double>(read_bytes) / read_s))
      .add(int64_t{is_direct})
      .bytes();
}

}  // namespace

std::string_view name(RootCondition condition) {
  switch (condition) {
    case RootCondition::kThere: return "there";
    case RootCondition::kAbsent: return "absent";
    case RootCondition::kForeign: return "not yours";
    case RootCondition::kNotAFolder: return "no folder";
    case RootCondition::kNoAnswer: return "no answer";
    case RootCondition::kFailed: return "failed";
  }
  return "?";
}

std::vector<RootReport> survey(const std::vector<Root>& roots, const std::string& user, const Deadline& deadline) {
  std::vector<RootReport> reports;
  std::vector<Work> works;
  for (const auto& root : roots) {
    reports.push_back({.root = root, .path = path_for(root, user)});
    works.push_back([path = reports.back().path, is_of_user = reports.back().path != root.path] {
      return look_at(path, is_of_user);
    });
  }
  for (const auto& report : reports) {  // apart, because a server may answer to files and not about quotas
    works.push_back([path = report.path] { return to_bytes(quotas_of(fs::canonical(existing_part(path)))); });
  }
  const auto mounts = read_mounts();
  const auto outcomes = in_children(works, deadline);
  for (size_t i = 0; i < reports.size(); ++i) {
    auto& report = reports[i];
    std::string place = report.path;
    if (!outcomes[i]) {
      report.reason = fmt::format("no answer in {}", seconds_text(deadline.limit()));
    } else if (!outcomes[i]->text) {
      report.condition = RootCondition::kFailed;
      report.reason = outcomes[i]->message;
    } else {
      FieldReader fields(*outcomes[i]->text);
      report.condition = static_cast<RootCondition>(fields.number());
      place = fields.text();
      report.free_bytes = fields.number();
      report.total_bytes = fields.number();
    }
    if (const auto& quotas = outcomes[reports.size() + i]; quotas && quotas->text) {
      FieldReader fields(*quotas->text);
      report.quotas = read_quotas(fields);
    } else if (outcomes[i] && outcomes[i]->text) {
      report.quotas.unknown = quotas ? quotas->message : fmt::format("no answer in {}", seconds_text(deadline.limit()));
    }
    const auto* const mount = mount_of(mounts, place);
    if (mount == nullptr) continue;
    report.mount = *mount;
    report.disk = disk_of(*mount);
  }
  return reports;
}

std::optional<int64_t> RootReport::usable_bytes() const {
  if (!free_bytes) return std::nullopt;
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return std::min<int64_t>(*free_bytes, quotas.left_bytes(now));
}

void measure(std::vector<RootReport>& reports, Seconds limit, const std::function<void(const RootReport&)>& on_root) {
  for (auto& report : reports) {
    if (report.condition != RootCondition::kThere) {
      report.speed_reason = name(report.condition);
      continue;
    }
    if (report.usable_bytes().value_or(0) < kLeastFree) {
      report.speed_reason = "less than 4 GiB are free for you";
      continue;
    }
    on_root(report);
    const auto outcome = in_children({[&] { return measure_in(report.path); }}, Deadline(limit)).front();
    if (!outcome || !outcome->text) {
      report.speed_reason = outcome ? outcome->message : fmt::format("it took more than {}", seconds_text(limit));
      continue;
    }
    FieldReader fields(*outcome->text);
    const auto write = static_cast<double>(fields.number()), read = static_cast<double>(fields.number());
    report.speed = Speed{write, read, fields.number() != 0};
  }
}

void mark_fastest(std::vector<RootReport>& reports) {
  const auto speed_of = [](const RootReport& report) {
    return report.speed ? std::min(report.speed->write_bytes_per_s, report.speed->read_bytes_per_s) : 0;
  };
  const auto counts = [](const RootReport& report) {
    const bool is_usable = report.condition == RootCondition::kThere ||
                           (report.condition == RootCondition::kAbsent && report.root.may_create);
    return report.disk.kind != DiskKind::kMemory && is_usable;
  };
  double best_speed = 0;
  auto best_kind = DiskKind::kUnknown;
  for (const auto& report : reports) {
    if (!counts(report)) continue;
    best_speed = std::max(best_speed, speed_of(report));
    best_kind = std::min(best_kind, report.disk.kind);
  }
  const RootReport* measured = nullptr;
  for (const auto& report : reports) {
    if (counts(report) && best_speed > 0 && speed_of(report) == best_speed) measured = &report;
  }
  for (auto& report : reports) {
    // All folders on the disk of the fastest one are as fast.
    report.is_fastest =
        counts(report) && (measured != nullptr ? report.disk == measured->disk
                                               : best_kind != DiskKind::kUnknown && report.disk.kind == best_kind);
  }
}

}  // namespace yoke::storage
