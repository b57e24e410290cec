#include "yoke/infer/batch_size.h"

#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>

#include "yoke/base/clock.h"
#include "yoke/base/environment.h"
#include "yoke/dist/error_text.h"
#include "yoke/dist/on_all_ranks.h"
#include "yoke/dist/world.h"

namespace yoke::infer {
namespace {

constexpr double kGain = 1.05;

double rate_of(const BatchTrial& trial) { return trial.seconds ? static_cast<double>(trial.size) / *trial.seconds : 0; }

/// Returns the shortest of several runs after a first one, because other programs interrupt some of them; nullopt if
/// there is too little memory.
std::optional<double> seconds_of(const BatchSizeSearch& search, int64_t size) {
  using Seconds = std::chrono::duration<double>;
  constexpr Seconds kEnough{0.1};
  std::optional<double> best;
  const auto begin = Clock::now();
  try {
    search.run(size);
    for (int i = 0; i < 30 && (i < 2 || Clock::now() - begin < kEnough); ++i) {
      const auto start = Clock::now();
      search.run(size);
      const double seconds = Seconds(Clock::now() - start).count();
      best = std::min(best.value_or(seconds), std::max(seconds, 1e-9));
    }
  } catch (const c10::OutOfMemoryError&) {
    if (size == search.least) throw;
    return std::nullopt;
  } catch (const std::bad_alloc&) {
    if (size == search.least) throw;
    return std::nullopt;
  }
  return best;
}

}  // namespace

std::optional<int64_t> next_batch_size(const std::vector<BatchTrial>& trials, const BatchSizeSearch& search) {
  if (trials.empty()) return search.least;
  const auto& last = trials.back();
  constexpr double kLongest = 0.5, kShortest = 0.01;
  if (!last.seconds || *last.seconds > kLongest || last.size > search.most / 2) return std::nullopt;
  if (trials.size() > 4 && *last.seconds > kShortest) {
    double best_before = 0;
    for (auto trial = trials.begin(); trial != trials.end() - 2; ++trial) {
      best_before = std::max(best_before, rate_of(*trial));
    }
    if (std::max(rate_of(last), rate_of(trials[trials.size() - 2])) < kGain * best_before) return std::nullopt;
  }
  return 2 * last.size;
}

int64_t best_batch_size(const std::vector<BatchTrial>& trials) {
  double best = 0;
  for (const auto& trial : trials) best = std::max(best, rate_of(trial));
  for (const auto& trial : trials) {
    if (rate_of(trial) * kGain >= best) return trial.size;
  }
  return trials.front().size;
}

std::optional<int64_t> compiled_batch_size(const std::string& error) {
  for (const std::string_view before :
       {"unmatched dim value at 0, expected: ", "dim value is too large at 0, expected to be <= "}) {
    const auto place = error.find(before);
    if (place == error.npos) continue;
    const auto digits = error.substr(place + before.size());
    return parse_int(digits.substr(0, digits.find_first_not_of("0123456789")));
  }
  return std::nullopt;
}

int64_t find_batch_size(dist::World& world, const BatchSizeSearch& search) {
  std::vector<BatchTrial> trials;
  while (const auto size = next_batch_size(trials, search)) {
    std::optional<double> seconds;
    int64_t compiled_for = 0;
    dist::on_all_ranks(world, "trying batch sizes", [&] {
      try {
        seconds = seconds_of(search, *size);
      } catch (const std::exception& error) {
        compiled_for = compiled_batch_size(dist::error_text(error)).value_or(0);
        if (compiled_for == 0) throw;
      }
    });
    // All ranks have the same code, so it refuses the size on all of them.
    if (compiled_for > 0) return trials.empty() ? compiled_for : best_batch_size(trials);
    const auto slowest =
        at::tensor({seconds.value_or(std::numeric_limits<double>::infinity())}, at::kDouble).to(world.device());
    world.all_reduce(slowest, dist::ReduceOp::kMax);
    const auto of_all = slowest.item<double>();
    trials.push_back({*size, of_all < std::numeric_limits<double>::infinity() ? std::optional(of_all) : std::nullopt});
  }
  return best_batch_size(trials);
}

}  // namespace yoke::infer
