#include <ATen/ops/full.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <exception>
#include <string_view>
#include <system_error>
#include <utility>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/dist/world.h"
#include "yoke/train/checkpoint/checkpoint.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw system_error(error.value(), "making the folder " + folder.string());
}

/// Names of a folder's entries; none when it does not exist.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw system_error(error.value(), "reading the folder " + folder.string());
  }
  return names;
}

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kSuffix = ".safetensors";

std::string name_of(int64_t step) { return fmt::format("{}{:012}{}", kPrefix, step, kSuffix); }

std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(std::min(kSuffix.size(), name.size()));
  const auto step = parse_int(name);
  // Only the name that we would give: "checkpoint-7.safetensors" is somebody's own copy.
  return step && *step >= 0 && name == fmt::format("{:012}", *step) ? step : std::nullopt;
}

/// What replace_file leaves of us when killed: ".checkpoint-000000000001.safetensors.XXXXXX.tmp".
bool is_our_temporary(std::string_view name) {
  constexpr std::string_view kEnd = ".tmp";
  constexpr size_t kRandom = 7;  // ".XXXXXX"
  if (!name.starts_with('.') || !name.ends_with(kEnd) || name.size() < 1 + kRandom + kEnd.size()) return false;
  return step_of(name.substr(1, name.size() - 1 - kRandom - kEnd.size())).has_value();
}

/// For the moment between a temporary's making and its lock.
constexpr auto kAbandonedAfter = std::chrono::minutes(1);

void remove_abandoned_temporaries(const fs::path& folder) {
  const auto now = fs::file_time_type::clock::now();
  for (const auto& name : names_in(folder)) {
    if (!is_our_temporary(name)) continue;
    const auto path = folder / name;
    std::error_code error;
    const auto written = fs::last_write_time(path, error);
    if (error || written > now - kAbandonedAfter) continue;
    const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (fd && flock(fd.value(), LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
  }
}

std::optional<double> number_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// A number among a file's metadata, by its header alone; nullopt when it has none, or NaN.
std::optional<double> metric_of(const fs::path& path, const std::string& name) {
  try {
    const auto header = parse_safetensors_header(MappedFile(path).bytes(), path.string());
    const auto found = header.metadata.find(name);
    if (found == header.metadata.end()) return std::nullopt;
    const auto value = number_of(found->second);
    return value && !std::isnan(*value) ? value : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;  // damaged, or pruned meanwhile
  }
}

/// A small exchange between ranks lives where their process group can take it.
at::Tensor flag(dist::World& world, int64_t value) {
  return at::full({1}, value, at::TensorOptions(at::kLong).device(world.device()));
}

}  // namespace

CheckpointFolder::CheckpointFolder(fs::path folder, const CheckpointFolderOptions& options)
    : folder_(std::move(folder)), options_(options) {
  if (options_.keep < 1 || options_.keep_best < 0) {
    throw Error(ErrorCode::kInvalidArgument, "checkpoints in {}: keep is {} and keep_best {}", folder_.string(),
                options_.keep, options_.keep_best);
  }
  if (options_.keep_best > 0 && options_.metric.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "checkpoints in {}: keep_best is {}, and no metric says which are best",
                folder_.string(), options_.keep_best);
  }
}

fs::path CheckpointFolder::path_of(int64_t step) const { return folder_ / name_of(step); }

std::vector<int64_t> CheckpointFolder::steps() const {
  std::vector<int64_t> steps;
  for (const auto& name : names_in(folder_)) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

fs::path CheckpointFolder::save(int64_t step, const CheckpointState& state, const OnWritten& on_written) const {
  if (const auto metric = state.metadata.find(options_.metric);
      options_.keep_best > 0 && metric != state.metadata.end() && !number_of(metric->second)) {
    throw Error(ErrorCode::kInvalidArgument,
                "step {} for {}: the best are kept by '{}', which is '{}': write it as a plain number, say '0.25'",
                step, folder_.string(), options_.metric, metric->second);
  }
  make_folder(folder_);
  const auto before = steps();
  const auto path = path_of(step);
  try {
    write_checkpoint(path, step, state, on_written);
  } catch (const Error& error) {
    if (before.empty()) throw;
    throw Error(error.code(), "{}; {} is as it was", error.what(), path_of(before.back()).filename().string());
  }
  try {
    prune(step);
    remove_abandoned_temporaries(folder_);
  } catch (const Error&) {
    // The checkpoint is safe; what could not be removed is tried again after the next save.
  }
  return path;
}

std::vector<int64_t> CheckpointFolder::best_first(const std::vector<int64_t>& steps) const {
  std::vector<std::pair<double, int64_t>> ranked;
  for (const int64_t step : steps) {
    const auto value = metric_of(path_of(step), options_.metric);
    if (value) ranked.emplace_back(options_.best == Best::kSmallest ? *value : -*value, step);
  }
  std::ranges::sort(ranked);
  std::vector<int64_t> result;
  for (const auto& entry : ranked) result.push_back(entry.second);
  return result;
}

std::optional<int64_t> CheckpointFolder::best_step() const {
  const auto ranked = best_first(steps());
  return ranked.empty() ? std::nullopt : std::optional(ranked.front());
}

void CheckpointFolder::prune(int64_t newest) const {
  auto older = steps();
  std::erase_if(older, [&](int64_t step) { return step > newest; });
  std::vector<int64_t> best;
  if (options_.keep_best > 0) best = best_first(older);
  best.resize(std::min(best.size(), static_cast<size_t>(options_.keep_best)));
  older.resize(older.size() - std::min(older.size(), static_cast<size_t>(options_.keep)));
  for (const int64_t step : older) {
    if (std::ranges::find(best, step) == best.end()) unlink(path_of(step).c_str());
  }
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
  constexpr int kMaxAttempts = 4;
  for (int attempt = 1;; ++attempt) {
    std::optional<Error> newest_error;
    bool vanished = false;
    for (auto left = steps(); !left.empty() && !vanished; left.pop_back()) {
      try {
        return read(left.back());
      } catch (const Error& error) {
        // A running writer has pruned it since the listing, so there is a newer one: look again.
        vanished = error.code() == ErrorCode::kNotFound && attempt < kMaxAttempts;
        if (vanished) continue;
        if (!newest_error) newest_error = error;
        warn(fmt::format("refused {}", error.what()));
      }
    }
    if (vanished) continue;
    if (!newest_error) return std::nullopt;
    throw Error(newest_error->code(), "no usable checkpoint in {}: {}", folder_.string(), newest_error->what());
  }
}

std::optional<Checkpoint> CheckpointFolder::load_latest(dist::World& world, const Warn& warn) const {
  constexpr int64_t kNone = -1, kFailed = -2;
  std::optional<Checkpoint> found;
  std::exception_ptr failure;
  auto choice = flag(world, kNone);
  if (world.rank() == 0) {
    try {
      found = load_latest(warn);
      if (found) choice.fill_(found->step);
    } catch (...) {
      failure = std::current_exception();
      choice.fill_(kFailed);
    }
  }
  world.broadcast(choice);
  if (failure) std::rethrow_exception(failure);
  const auto step = choice.item<int64_t>();
  if (step == kFailed) {
    throw Error(ErrorCode::kDataLoss, "rank 0 found no usable checkpoint in {}; its message says why",
                folder_.string());
  }
  if (step == kNone) return std::nullopt;

  if (world.rank() != 0) {
    try {
      found = read(step);
    } catch (...) {
      failure = std::current_exception();
    }
  }
  const auto done = world.all_gather(flag(world, failure ? 0 : 1)).cpu();  // [ranks, 1]
  if (failure) std::rethrow_exception(failure);
  for (int64_t rank = 0; rank < world.size(); ++rank) {
    if (done[rank].item<int64_t>() == 0) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "rank {} could not read {}: its message says why; all ranks need the folder", rank,
                  path_of(step).string());
    }
  }
  return found;
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
