// yoke/train/watch/detail/memory_growth.h -- whether the memory of a rank grows with each step of its training.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/clock.h"

namespace yoke::train::detail {

/// How much memory a rank had after a step.
struct MemorySample {
  int64_t step = 0;
  int64_t bytes = 0;
};

/// Samples of a training since the process began it, spread evenly over that time: if there would be more than
/// kMaxSamples, every second one is left out, and those to come are taken half as often.
class MemorySamples {
 public:
  static constexpr size_t kMaxSamples = 64;

  bool is_due(Clock::time_point now) const { return now >= next_; }
  void add(MemorySample sample, Clock::time_point now);
  const std::vector<MemorySample>& all() const { return samples_; }

 private:
  std::vector<MemorySample> samples_;
  Clock::duration interval_ = std::chrono::milliseconds(50);
  Clock::time_point next_;
};

struct MemoryGrowth {
  int64_t rank = 0;
  bool is_of_device = false;
  int64_t bytes_per_step = 0;
  int64_t since = 0;  ///< The first step of the growth.
  int64_t bytes = 0;  ///< The newest sample.

  bool operator==(const MemoryGrowth&) const = default;
};

inline constexpr int64_t kMinGrowthBytes = 32 << 20;

/// Returns the longest steady growth that goes on until now; nullopt: there is none. It has at least 17 samples, and is
/// kMinGrowthBytes and 5 % or more. Of eight parts of its time, seven, the first and the last grow by a quarter of the
/// mean or more, and none has three eighths of it all: so neither what grows at first, nor what grows once, nor what
/// returns, is growth. Of what returns, the first rise is growth until it returns.
std::optional<MemoryGrowth> find_growth(const std::vector<MemorySample>& samples);

/// A sentence such as "memory of rank 2 grows by 1.2 MiB a step since step 4100, and is 3.1 GiB now". `num_others` is
/// that of further ranks whose memory grows. `may_be_cache`: the growth is of the first epoch.
std::string to_text(const MemoryGrowth& growth, int64_t num_others, bool may_be_cache);

/// Whether `now` says something that `before` did not: another rank, or half as much again.
bool is_news(const std::optional<MemoryGrowth>& before, const MemoryGrowth& now);

/// The memory of this process that no file and no other process has: heap, stacks and CPU tensors. It takes some
/// microseconds. Returns nullopt if the system does not say.
std::optional<int64_t> anonymous_bytes();

/// What libtorch's allocator has given out on the device; nullopt on the CPU, and if nothing is known.
std::optional<int64_t> allocated_bytes(c10::Device device);

}  // namespace yoke::train::detail
