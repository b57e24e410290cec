// yoke/profile/causes.h -- what can limit a training: the table of bottlenecks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace yoke::profile {

/// The possible bottlenecks. If several cost the same time, the first of them in this order is named.
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

/// Says when a cause is a bottleneck, what its time consists of, and what helps. docs/profile.md has the formulas.
struct Rule {
  Cause cause;
  std::string_view name;     ///< "data_loading"
  double threshold_percent;  ///< A cause is named only if it takes at least this share of the step.
  std::string_view title;    ///< "Data loading"
  std::string_view reason;   ///< What the time consists of. Without a device, `host_reason` is used instead.
  std::string_view advice;   ///< What helps, as a sentence.
  std::string_view host_reason = reason;
};
const Rule& rule_of(Cause cause);

}  // namespace yoke::profile
