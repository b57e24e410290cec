#include "tools/bench/measure.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>

#include "yoke/base/cgroup_limits.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"

namespace yoke::exercise {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void check_memory(double num_bytes) {
  const auto free = available_memory_bytes();
  if (num_bytes < static_cast<double>(free)) return;
  throw Error(ErrorCode::kInvalidArgument, "these sizes need {} of memory, and {} are free; give smaller --sizes",
              num_bytes < 0x1p62 ? format_bytes(static_cast<int64_t>(num_bytes)) : "more than 4096 PiB",
              format_bytes(free));
}

void wait_for(c10::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeDevice(device.has_index() ? device.index() : guard.getDevice().index());
}

void Progress::show(const std::string& text) {
  const double now = now_seconds();
  if (!is_shown_ || now < next_) return;
  next_ = now + 0.1;
  std::cout << name_ << ": " << text << std::endl;
}

double quantile(std::vector<double> sorted, double share) {
  std::ranges::sort(sorted);
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const auto above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

void add_times(Json& row, const std::string& name, const Times& times) {
  row[name + "_ms"] = times.median() * 1e3;
  row[name + "_p10_ms"] = quantile(times.seconds, 0.1) * 1e3;
  row[name + "_p90_ms"] = quantile(times.seconds, 0.9) * 1e3;
  row["num_rounds"] = times.seconds.size();
}

std::vector<double> ratios(const Times& one, const Times& other) {
  std::vector<double> values;
  for (size_t i = 0; i < one.seconds.size(); ++i) values.push_back(one.seconds[i] / other.seconds[i]);
  return values;
}

void add_speedup(Json& row, const Times& before, const Times& after) {
  const auto values = ratios(before, after);
  row["speedup"] = quantile(values, 0.5);
  row["speedup_p10"] = quantile(values, 0.1);
  row["speedup_p90"] = quantile(values, 0.9);
}

std::vector<Times> measure(const std::vector<Case>& cases, const Rounds& rounds, Progress& progress) {
  constexpr double kShortest = 1e-3;  // seconds that a case runs in a round, at least
  constexpr double kWarmUp = 0.02;
  constexpr int64_t kMost = 10'000;
  std::vector<int64_t> counts;
  for (size_t i = 0; i < cases.size(); ++i) {
    progress.show(fmt::format("{}, {} of {}", cases[i].name, i + 1, cases.size()));
    cases[i].run(1);
    // Uses the shortest of several runs, because other programs may have interrupted some of them.
    double once = kWarmUp;
    const double warm_start = rounds.now();
    for (int run = 0; run < 5 && (run == 0 || rounds.now() - warm_start < kWarmUp); ++run) {
      const double start = rounds.now();
      cases[i].run(1);
      once = std::min(once, std::max(1e-8, rounds.now() - start));
    }
    counts.push_back(std::clamp<int64_t>(static_cast<int64_t>(std::ceil(kShortest / once)), 1, kMost));
  }
  std::vector<Times> all(cases.size());
  const double start = rounds.now();
  for (int64_t round = 0; round < rounds.at_least || rounds.now() - start < rounds.seconds; ++round) {
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto number = (i + static_cast<size_t>(round)) % cases.size();
      progress.show(fmt::format("{}, round {}, {:.0f} of {:.0f} s", cases[number].name, round + 1, rounds.now() - start,
                                rounds.seconds));
      const double begin = rounds.now();
      cases[number].run(counts[number]);
      all[number].seconds.push_back((rounds.now() - begin) / static_cast<double>(counts[number]));
    }
  }
  return all;
}

}  // namespace yoke::exercise
