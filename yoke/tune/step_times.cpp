#include "yoke/tune/step_times.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/file.h"
#include "yoke/base/median.h"
#include "yoke/base/text.h"
#include "yoke/contract/step_times.h"

namespace yoke::tune {
namespace {

constexpr size_t kMaxParts = 10, kEnoughParts = 5;
constexpr double kCertain = 0.01;

void add_memory(const StepMemory& step, Memory& memory) {
  const auto set = [&](Resource resource, int64_t peak, int64_t limit) {
    auto& use = memory[static_cast<size_t>(resource)];
    use.peak_bytes = std::max(use.peak_bytes, peak);
    if (limit != 0) use.limit_bytes = limit;
  };
  set(Resource::kHost, step.resident_peak_bytes, 0);
  set(Resource::kAddressSpace, step.address_space_peak_bytes, step.address_space_limit_bytes);
  set(Resource::kDevice, step.device_peak_bytes, step.device_limit_bytes);
}

/// The steps of one rank after its warm-up.
std::optional<Pace> pace_of_rank(const RankSteps& rank, const PaceOptions& options) {
  if (rank.ends.empty()) return std::nullopt;
  const double total = rank.ends.back().seconds - rank.ends.front().seconds;
  const auto begin = std::ranges::find_if(rank.ends, [&](const StepEnd& end) {
    return end.step + 1 >= options.num_warm_up_steps && end.seconds >= rank.ends.front().seconds + total / 5;
  });
  const auto num_intervals = static_cast<size_t>(std::max<std::ptrdiff_t>(0, rank.ends.end() - begin - 1));
  if (num_intervals < 2) return std::nullopt;
  const auto num_parts = std::min(kMaxParts, num_intervals);
  std::vector<double> means;
  for (size_t part = 0; part < num_parts; ++part) {
    const auto& from = begin[static_cast<std::ptrdiff_t>(part * num_intervals / num_parts)];
    const auto& to = begin[static_cast<std::ptrdiff_t>((part + 1) * num_intervals / num_parts)];
    means.push_back((to.seconds - from.seconds) / static_cast<double>(to.step - from.step));
  }
  Pace pace{.step_seconds = median(means)};
  pace.num_steps = rank.ends.back().step - begin->step;
  pace.seconds = rank.ends.back().seconds - begin->seconds;
  std::vector<double> deviations;
  for (const double mean : means) deviations.push_back(std::abs(mean - pace.step_seconds));
  const double deviation = 1.4826 * median(deviations) / pace.step_seconds;  // of a normal distribution
  pace.spread_percent = 100 * deviation;
  const bool is_certain =
      num_parts >= kEnoughParts && deviation / std::sqrt(static_cast<double>(num_parts)) < kCertain / 2;
  pace.is_enough = pace.seconds >= options.max_seconds || (pace.seconds >= options.min_seconds && is_certain);
  return pace;
}

}  // namespace

void add_lines(std::string_view text, RankSteps& rank) {
  for (const auto line : lines_of(text)) {
    const auto read = parse_step_times(line);
    if (const auto* const whose = std::get_if<StepTimesRank>(&read)) {
      rank.rank = whose->rank;
      rank.world_size = whose->world_size;
      rank.local_world_size = whose->local_world_size;
    } else if (const auto* const time = std::get_if<StepTime>(&read)) {
      const StepEnd end{time->step, static_cast<double>(time->time_ns) / 1e9, time->memory.resident_peak_bytes};
      const bool is_later =
          rank.ends.empty() || (end.step > rank.ends.back().step && end.seconds > rank.ends.back().seconds);
      if (is_later) rank.ends.push_back(end);
      add_memory(time->memory, rank.memory);
    }
  }
}

std::vector<RankSteps> StepTimeFolder::read() {
  std::map<int64_t, const RankSteps*> newest;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    auto& file = files_[entry.path().string()];
    const auto fd = open_regular_file(entry.path());
    char buffer[1 << 16];
    for (ssize_t count = 0; (count = pread(fd.value(), buffer, sizeof buffer, file.offset)) > 0;) {
      file.offset += count;
      file.rest.append(buffer, static_cast<size_t>(count));
      const auto end = file.rest.rfind('\n');
      if (end == file.rest.npos) continue;
      add_lines(std::string_view(file.rest).substr(0, end), file.steps);
      file.rest.erase(0, end + 1);
    }
  }
  for (const auto& [path, file] : files_) {
    auto& chosen = newest[file.steps.rank];
    const auto last = [](const RankSteps& steps) { return steps.ends.empty() ? 0 : steps.ends.back().seconds; };
    if (chosen == nullptr || last(file.steps) > last(*chosen)) chosen = &file.steps;
  }
  std::vector<RankSteps> result;
  for (const auto& [rank, steps] : newest) result.push_back(*steps);
  return result;
}

std::optional<Pace> pace_of(std::span<const RankSteps> ranks, const PaceOptions& options) {
  if (ranks.empty() || std::ssize(ranks) < ranks.front().local_world_size) return std::nullopt;
  std::optional<Pace> slowest;
  bool is_enough = true;
  for (const auto& rank : ranks) {
    const auto pace = pace_of_rank(rank, options);
    if (!pace) return std::nullopt;
    is_enough = is_enough && pace->is_enough;
    if (!slowest || pace->step_seconds > slowest->step_seconds) slowest = pace;
  }
  slowest->is_enough = is_enough;
  return slowest;
}

double host_growth(std::span<const RankSteps> ranks) {
  double per_step = 0;
  for (const auto& rank : ranks) {
    std::vector<StepEnd> known;  // the last line of a program that has ended does not tell its memory
    std::ranges::copy_if(rank.ends, std::back_inserter(known),
                         [](const auto& end) { return end.resident_peak_bytes > 0; });
    if (known.empty()) continue;
    const auto& last = known.back();
    const auto& middle = *std::ranges::find_if(known, [&](const auto& end) { return 2 * end.step >= last.step; });
    const auto grown = static_cast<double>(last.resident_peak_bytes - middle.resident_peak_bytes);
    const double noise = std::max(8.0 * (1 << 20), 0.01 * static_cast<double>(last.resident_peak_bytes));
    if (grown > noise) per_step += grown / static_cast<double>(last.step - middle.step);
  }
  return per_step;
}

Memory memory_of(std::span<const RankSteps> ranks) {
  Memory result = {};
  for (const auto& rank : ranks) {
    result[0].peak_bytes += rank.memory[0].peak_bytes;
    for (const auto resource : {Resource::kAddressSpace, Resource::kDevice}) {
      const auto& use = rank.memory[static_cast<size_t>(resource)];
      auto& all = result[static_cast<size_t>(resource)];
      all.peak_bytes = std::max(all.peak_bytes, use.peak_bytes);
      if (use.limit_bytes == 0) continue;
      all.limit_bytes = all.limit_bytes == 0 ? use.limit_bytes : std::min(all.limit_bytes, use.limit_bytes);
    }
  }
  return result;
}

}  // namespace yoke::tune
