// yoke/profile/causes.h -- what can limit a training: the table of bottlenecks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace yoke::profile {

/// What can be the bottleneck, in the order in which equals are named.
enum class Cause : uint8_t {
  kDataLoading,
  kCommunication,
  kSkew,
  kSmallOperations,
  kHostSync,
  kDeviceCopy,
  kThreads,
  kPaging,
  kPrecision,
  kOptimizer,
  kMemoryBandwidth,
};
inline constexpr size_t kNumCauses = 11;

/// When a cause is a bottleneck, what its time consists of, and what to do about it. docs/profile.md has the formulas.
struct Rule {
  Cause cause;
  std::string_view name;     ///< "data_loading"
  double threshold_percent;  ///< Of the step; a cause that takes less is not named.
  std::string_view title;    ///< "Data loading"
  std::string_view reason;   ///< A sentence that says what the time consists of; without a device, `host_reason`.
  std::string_view advice;   ///< A sentence.
  std::string_view host_reason = reason;
};
const Rule& rule_of(Cause cause);

}  // namespace yoke::profile
