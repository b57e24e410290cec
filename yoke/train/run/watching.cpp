// What a Run notes about its steps, and says about them: what slows them down, and memory that grows.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/fields.h"
#include "yoke/base/file.h"
#include "yoke/train/run/detail/run_impl.h"
#include "yoke/train/watch/detail/steps_report.h"

namespace yoke::train {
namespace {

constexpr const char* kStepsReport = "profile.json";

/// What a rank tells the others.
std::string notes_of(const detail::PhaseWindows& windows, const std::vector<detail::MemoryGrowth>& growths,
                     const std::string& not_finite) {
  FieldWriter fields;
  fields.add(detail::to_bytes(windows.windows())).add(not_finite).add(static_cast<int64_t>(growths.size()));
  for (const auto& growth : growths) {
    fields.add(int64_t{growth.is_of_device}).add(growth.bytes_per_step).add(growth.since).add(growth.bytes);
  }
  return fields.bytes();
}

/// Of all ranks, the largest growth, of devices and of hosts.
struct Growths {
  std::optional<detail::MemoryGrowth> largest[2] = {};
  int64_t num_ranks[2] = {};

  void add(const detail::MemoryGrowth& growth) {
    auto& so_far = largest[growth.is_of_device ? 1 : 0];
    if (!so_far || growth.bytes_per_step > so_far->bytes_per_step) so_far = growth;
    ++num_ranks[growth.is_of_device ? 1 : 0];
  }
};

}  // namespace

void Run::Impl::begin_watching() {
  windows.clear();
  windows_begin = step + 1;  // while the first batch is read, workers start
  // Ranks that join in their first epoch, and those that go on, know the same here.
  next_look = windows_begin + static_cast<int64_t>(detail::kMinWindows) * detail::PhaseWindows::kFirstSteps;
  if (options.watch) phases.start(detail::Phase::kData);
}

void Run::Impl::sample_memory() {
  if (!memory.is_due(last_step)) return;
  if (const auto bytes = detail::anonymous_bytes()) memory.add({step, *bytes}, last_step);
  if (const auto bytes = detail::allocated_bytes(world.device())) device_memory.add({step, *bytes}, last_step);
}

void Run::Impl::write_report(const std::vector<std::vector<detail::PhaseTimes>>& ranks,
                             const std::optional<detail::Slowdown>& found) {
  const auto is_other = [&](const auto& of_rank) { return of_rank.size() != windows.windows().size(); };
  if (std::ranges::any_of(ranks, is_other)) return;
  try {
    replace_file(folder / kStepsReport, detail::steps_report({.ranks = ranks,
                                                              .steps_per_window = windows.steps_per_window(),
                                                              .first_step = windows_begin,
                                                              .has_device = !world.device().is_cpu(),
                                                              .slowdown = found}));
  } catch (const Error& error) {  // the training does not need it
    if (!std::exchange(has_warned_of_report, true)) options.checkpoints.warn(error.what());
  }
}

std::vector<std::string> Run::Impl::watch_step() {
  if (!options.watch) return {};
  sample_memory();
  if (step != next_look || schedule_step % steps_per_epoch == 0) return {};
  return look();
}

std::vector<std::string> Run::Impl::look() {
  if (windows.windows().size() < detail::kMinWindows) return {};  // on all ranks alike
  std::vector<detail::MemoryGrowth> own;
  if (const auto growth = detail::find_growth(memory.all())) own.push_back(*growth);
  if (auto growth = detail::find_growth(device_memory.all())) {
    growth->is_of_device = true;
    own.push_back(*growth);
  }
  std::vector<std::vector<detail::PhaseTimes>> ranks;
  std::vector<std::string> not_finite;
  Growths growths;
  for (const auto& bytes : world.all_gather_text(notes_of(windows, own, figures.not_finite()))) {
    FieldReader fields(bytes);
    const auto rank = static_cast<int64_t>(ranks.size());
    ranks.push_back(detail::from_bytes(fields.text()));
    not_finite.emplace_back(fields.text());
    for (auto count = fields.number(); count > 0; --count) {
      detail::MemoryGrowth growth{.rank = rank, .is_of_device = fields.number() != 0};
      growth.bytes_per_step = fields.number();
      growth.since = fields.number();
      growth.bytes = fields.number();
      growths.add(growth);
    }
  }
  // All ranks have the same times, so they meet again after the same step.
  const auto covered = detail::longest_time(ranks);
  const auto num_steps = static_cast<int64_t>(windows.windows().size()) * windows.steps_per_window();
  const auto wanted = std::chrono::duration<double>(options.watch_every) / std::max(covered, Clock::duration(1));
  next_look =
      step + std::max(detail::PhaseWindows::kFirstSteps, static_cast<int64_t>(wanted * static_cast<double>(num_steps)));
  const bool is_within_epoch = schedule_step % steps_per_epoch != 0;
  if (!is_rank_0()) return {};
  std::vector<std::string> news;
  const auto first = figures.first_not_finite(not_finite);  // of the epoch until now
  if (first.is_of_some && !std::exchange(has_said_first_not_finite, true)) {
    news.push_back(fmt::format("warning: not all figures are finite any more: {}", first.text));
  }
  if (is_within_epoch && covered < options.watch_every) return news;
  const auto found = detail::find_slowdown(ranks, windows.steps_per_window(), windows_begin, !world.device().is_cpu());
  write_report(ranks, found);
  if (found && detail::is_news(slowdown, *found)) {
    slowdown = found;
    news.push_back(detail::to_text(*found));
  }
  for (size_t i = 0; i < std::size(growths.largest); ++i) {
    const auto& growth = growths.largest[i];
    const bool is_first_epoch = epoch_begin == first_step;
    if (!growth || !(detail::is_news(said_growth[i], *growth) || (was_first_epoch[i] && !is_first_epoch))) continue;
    said_growth[i] = growth;
    was_first_epoch[i] = is_first_epoch;
    news.push_back(detail::to_text(*growth, growths.num_ranks[i] - 1, is_first_epoch));
  }
  return news;
}

}  // namespace yoke::train
