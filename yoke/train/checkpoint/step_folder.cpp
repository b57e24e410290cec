#include "yoke/train/checkpoint/step_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cmath>
#include <iterator>
#include <system_error>
#include <utility>

#include "yoke/base/environment.h"
#include "yoke/base/file.h"
#include "yoke/dist/group.h"
#include "yoke/dist/on_all_ranks.h"
#include "yoke/train/checkpoint/detail/sharded_files.h"
#include "yoke/train/checkpoint/detail/whole_file.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint-", kSuffix = ".safetensors";

/// A temporary file younger than this may not have been locked yet by its writer, so it is kept.
constexpr auto kAbandonedAfter = std::chrono::minutes(1);

std::optional<double> number_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// Returns which values of a well-known metric are better, by the words of its name.
std::optional<Best> best_of(std::string_view metric) {
  constexpr std::string_view kFallingWords[] = {"loss", "error", "perplexity", "mse", "mae", "rmse"};
  constexpr std::string_view kRisingWords[] = {"accuracy", "acc", "f1", "auc", "precision", "recall", "iou", "bleu"};
  bool is_falling = false, is_rising = false;
  std::string word;
  for (const char character : std::string(metric) + "_") {
    if (std::isalnum(static_cast<unsigned char>(character)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(character)));
      continue;
    }
    is_falling = is_falling || std::ranges::find(kFallingWords, word) != std::end(kFallingWords);
    is_rising = is_rising || std::ranges::find(kRisingWords, word) != std::end(kRisingWords);
    word.clear();
  }
  if (is_falling == is_rising) return std::nullopt;
  return is_falling ? Best::kSmallest : Best::kLargest;
}

}  // namespace

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw system_error(error.value(), "making the folder " + folder.string());
}

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

StepFolder::StepFolder(fs::path path, const CheckpointFolderOptions& options)
    : path_(std::move(path)), options_(options) {
  if (options_.keep < 1 || options_.keep_best < 0) {
    throw Error(ErrorCode::kInvalidArgument, "checkpoints in {}: keep is {} and keep_best {}", path_.string(),
                options_.keep, options_.keep_best);
  }
  if (options_.keep_best > 0 && options_.metric.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "checkpoints in {}: keep_best is {}, but no metric is set to compare checkpoints", path_.string(),
                options_.keep_best);
  }
  if (!options_.best) options_.best = best_of(options_.metric);
  if (!options_.best && !options_.metric.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "checkpoints in {}: the name '{}' does not tell whether its small or its large values are better; set "
                "CheckpointFolderOptions::best to Best::kSmallest or Best::kLargest",
                path_.string(), options_.metric);
  }
}

fs::path StepFolder::folder_of(int64_t step) const { return path_ / fmt::format("{}{:012}", kPrefix, step); }

fs::path StepFolder::file_of(int64_t step) const { return path_ / fmt::format("{}{:012}{}", kPrefix, step, kSuffix); }

fs::path StepFolder::path_of(int64_t step) const {
  std::error_code ignored;
  return fs::exists(folder_of(step) / kShardIndex, ignored) ? folder_of(step) : file_of(step);
}

std::optional<int64_t> StepFolder::step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  if (name.ends_with(kSuffix)) name.remove_suffix(kSuffix.size());
  const auto step = parse_int(name);
  return step && *step >= 0 && name == fmt::format("{:012}", *step) ? step : std::nullopt;
}

bool StepFolder::exists(int64_t step) const {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(file_of(step), ignored)) || fs::exists(folder_of(step) / kShardIndex, ignored);
}

std::vector<int64_t> StepFolder::steps() const {
  std::vector<int64_t> steps;
  for (const auto& name : names_in(path_)) {
    const auto step = step_of(name);
    if (step && exists(*step)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

void StepFolder::check_metric(int64_t step, const StringMap& metadata) const {
  const auto metric = metadata.find(options_.metric);
  if (options_.keep_best == 0 || metric == metadata.end() || number_of(metric->second)) return;
  throw Error(ErrorCode::kInvalidArgument,
              "step {} for {}: the best are kept by '{}', which is '{}': write it as a plain number, such as '0.25'",
              step, path_.string(), options_.metric, metric->second);
}

std::vector<int64_t> StepFolder::best_first(const std::vector<int64_t>& steps) const {
  std::vector<std::pair<double, int64_t>> ranked;
  for (const int64_t step : steps) {
    try {
      const auto path = path_of(step);
      const auto metadata = path == folder_of(step) ? sharded_metadata(path) : whole_file_metadata(path);
      const auto found = metadata.find(options_.metric);
      const auto value = found == metadata.end() ? std::nullopt : number_of(found->second);
      if (value && !std::isnan(*value)) ranked.emplace_back(options_.best == Best::kSmallest ? *value : -*value, step);
    } catch (const Error&) {
      // the checkpoint is damaged or has just been removed, so it is not among the best
    }
  }
  std::ranges::sort(ranked);
  std::vector<int64_t> result;
  for (const auto& entry : ranked) result.push_back(entry.second);
  return result;
}

std::optional<int64_t> StepFolder::best_step() const {
  const auto ranked = best_first(steps());
  return ranked.empty() ? std::nullopt : std::optional(ranked.front());
}

std::vector<int64_t> StepFolder::superseded(int64_t newest) const {
  auto older = steps();
  std::erase_if(older, [&](int64_t step) { return step > newest; });
  std::vector<int64_t> best;
  if (options_.keep_best > 0) best = best_first(older);
  best.resize(std::min(best.size(), static_cast<size_t>(options_.keep_best)));
  older.resize(older.size() - std::min(older.size(), static_cast<size_t>(options_.keep)));
  std::erase_if(older, [&](int64_t step) { return std::ranges::find(best, step) != best.end(); });
  return older;
}

void StepFolder::prune(int64_t newest) const noexcept {
  try {
    for (const int64_t old : superseded(newest)) {
      unlink(file_of(old).c_str());
      remove_sharded(folder_of(old));
    }
    remove_abandoned();
  } catch (const std::exception&) {
    // The new checkpoint is safely on disk, so a failed removal does not matter.
  }
}

/// Removes what saves that were killed have left: temporary files ".checkpoint-000000000001.safetensors.XXXXXX.tmp" and
/// folders without an index. A running writer holds a lock on its temporary file, so that file is kept.
void StepFolder::remove_abandoned() const {
  constexpr std::string_view kEnd = ".tmp";
  constexpr size_t kRandom = 7;  // ".XXXXXX"
  const auto now = fs::file_time_type::clock::now();
  for (const auto& name : names_in(path_)) {
    const auto path = path_ / name;
    if (const auto step = step_of(name)) {
      if (!exists(*step)) remove_sharded(path);
      continue;
    }
    if (!name.starts_with('.') || !name.ends_with(kEnd) || name.size() < 1 + kRandom + kEnd.size()) continue;
    if (!step_of(std::string_view(name).substr(1, name.size() - 1 - kRandom - kEnd.size()))) continue;
    std::error_code error;
    const auto written = fs::last_write_time(path, error);
    if (error || written > now - kAbandonedAfter) continue;
    const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (fd && flock(fd.value(), LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
  }
}

StoredCheckpoint StepFolder::read(int64_t step) const {
  auto checkpoint = read_checkpoint(path_of(step));
  if (checkpoint.step == step) return checkpoint;
  throw Error(ErrorCode::kDataLoss, "{}: holds step {}, not the step of its name", checkpoint.path.string(),
              checkpoint.step);
}

std::optional<StoredCheckpoint> StepFolder::newest_sound() const {
  constexpr int kMaxAttempts = 4;
  for (int attempt = 1;; ++attempt) {
    std::optional<Error> newest_error;
    auto left = steps();
    // A listing is not atomic: while a writer runs, the listing may lack both the removed checkpoints and the new one.
    bool vanished = left.empty() && attempt < kMaxAttempts;
    for (; !left.empty() && !vanished; left.pop_back()) {
      try {
        return read(left.back());
      } catch (const Error& error) {
        // After the listing, a running writer has removed this checkpoint. So a newer one exists, and the folder is
        // listed again.
        vanished = !exists(left.back()) && attempt < kMaxAttempts;
        if (vanished) continue;
        if (!newest_error) newest_error = error;
        options_.warn(fmt::format("refused {}", error.what()));
      }
    }
    if (vanished) continue;
    if (!newest_error) return std::nullopt;
    throw Error(newest_error->code(), "no usable checkpoint in {}: {}", path_.string(), newest_error->what());
  }
}

std::optional<StoredCheckpoint> StepFolder::newest_sound(dist::Group& group) const {
  std::optional<StoredCheckpoint> found;
  on_all_ranks(group, "choosing a checkpoint", [&] {
    if (group.rank() == 0) found = newest_sound();
  });
  const auto choice = group.all_gather_text(found ? std::to_string(found->step) : "").front();
  if (choice.empty()) return std::nullopt;
  on_all_ranks(group, "all ranks need the folder " + path_.string(), [&] {
    if (group.rank() != 0) found = read(*parse_int(choice));
  });
  // There may be two checkpoints of one step if ranks see different folders with the same name.
  const auto identity = [&] {
    const auto& marks = found->marks;
    for (const auto* mark : {"yoke.save", "yoke.crc32.header"}) {
      if (const auto known = marks.find(mark); known != marks.end()) return known->second;
    }
    return std::string();
  };
  const auto seen = group.all_gather_text(identity());
  if (const auto other = std::ranges::find_if(seen, [&](const auto& text) { return text != seen[0]; });
      other != seen.end()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "{}: ranks 0 and {} see different checkpoints of step {}: all ranks must see "
                "one and the same folder",
                path_.string(), other - seen.begin(), choice);
  }
  return found;
}

}  // namespace yoke::train
