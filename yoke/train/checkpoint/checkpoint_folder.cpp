// A folder of checkpoints that are a file each, and the lock by which it is one run's.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string_view>
#include <system_error>

#include "yoke/base/error.h"
#include "yoke/train/checkpoint/checkpoint.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".safetensors";

StringMap metadata_of(const fs::path& path) {
  return parse_safetensors_header(MappedFile(path).bytes(), path.string()).metadata;
}

/// What replace_file leaves of us when killed: ".checkpoint-000000000001.safetensors.XXXXXX.tmp".
bool is_our_temporary(const StepFolder& folder, std::string_view name) {
  constexpr std::string_view kEnd = ".tmp";
  constexpr size_t kRandom = 7;  // ".XXXXXX"
  if (!name.starts_with('.') || !name.ends_with(kEnd) || name.size() < 1 + kRandom + kEnd.size()) return false;
  return folder.step_of(name.substr(1, name.size() - 1 - kRandom - kEnd.size())).has_value();
}

/// For the moment between a temporary's making and its lock.
constexpr auto kAbandonedAfter = std::chrono::minutes(1);

void remove_abandoned_temporaries(const StepFolder& folder) {
  const auto now = fs::file_time_type::clock::now();
  for (const auto& name : names_in(folder.path())) {
    if (!is_our_temporary(folder, name)) continue;
    const auto path = folder.path() / name;
    std::error_code error;
    const auto written = fs::last_write_time(path, error);
    if (error || written > now - kAbandonedAfter) continue;
    const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (fd && flock(fd.value(), LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
  }
}

}  // namespace

CheckpointFolder::CheckpointFolder(fs::path folder, const CheckpointFolderOptions& options)
    : files_(std::move(folder), options, std::string(kSuffix), "", metadata_of) {}

fs::path CheckpointFolder::save(int64_t step, const CheckpointState& state, const OnWritten& on_written) const {
  files_.check_metric(step, state.metadata);
  make_folder(folder());
  const auto before = steps();
  const auto path = path_of(step);
  try {
    write_checkpoint(path, step, state, on_written);
  } catch (const Error& error) {
    if (before.empty()) throw;
    throw Error(error.code(), "{}; {} is as it was", error.what(), path_of(before.back()).filename().string());
  }
  try {
    for (const int64_t old : files_.superseded(step)) unlink(path_of(old).c_str());
    remove_abandoned_temporaries(files_);
  } catch (const Error&) {
    // The checkpoint is safe; what could not be removed is tried again after the next save.
  }
  return path;
}

Checkpoint CheckpointFolder::read(int64_t step) const {
  auto checkpoint = read_checkpoint(path_of(step));
  if (checkpoint.step != step) {
    throw Error(ErrorCode::kDataLoss, "{}: holds step {}, not the step of its name", checkpoint.path.string(),
                checkpoint.step);
  }
  return checkpoint;
}

std::optional<Checkpoint> CheckpointFolder::load_latest(const Warn& warn) const {
  auto found = files_.newest_sound([this](int64_t step) { return read(step); }, warn);
  return found ? std::optional(std::move(found->second)) : std::nullopt;
}

std::optional<Checkpoint> CheckpointFolder::load_latest(dist::World& world, const Warn& warn) const {
  auto found = files_.newest_sound(
      world, [this](int64_t step) { return read(step); }, warn);
  return found ? std::optional(std::move(found->second)) : std::nullopt;
}

FolderLock::FolderLock(const fs::path& folder) {
  make_folder(folder);
  const auto path = folder / ".yoke-lock";
  fd_ = UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd_) throw system_error(errno, "opening " + path.string());
  if (flock(fd_.value(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) throw system_error(errno, "locking " + path.string());
    auto holder = read_file(path);
    throw Error(ErrorCode::kUnavailable,
                "the folder {} is in use by another run{}{}; wait for it, or choose another folder", folder.string(),
                holder.empty() ? "" : ": ", holder);
  }
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const auto holder = fmt::format("pid {} on {}", getpid(), host);
  // Only for the message above: on a full disk it stays empty.
  if (ftruncate(fd_.value(), 0) == 0) [[maybe_unused]]
    const auto count = write(fd_.value(), holder.data(), holder.size());
}

}  // namespace yoke::train
