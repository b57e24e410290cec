#include "yoke/train/watch/detail/memory_growth.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "yoke/base/format.h"
#include "yoke/base/sysfs.h"

namespace yoke::train::detail {
namespace {

constexpr size_t kParts = 8, kMinPoints = 2 * kParts + 1;
constexpr size_t kMinGrowing = 7;
constexpr double kMinShareOfMean = 0.25, kMaxShareOfMean = 3, kMinShareOfMemory = 0.05;

/// Whether the memory grows steadily from sample number `first` on.
bool grows_from(const std::vector<MemorySample>& samples, size_t first) {
  const auto &begin = samples[first], &end = samples.back();
  const auto growth = static_cast<double>(end.bytes - begin.bytes);
  if (end.step <= begin.step || growth < kMinGrowthBytes ||
      growth < kMinShareOfMemory * static_cast<double>(begin.bytes)) {
    return false;
  }
  int64_t most_before = 0;
  for (size_t i = 0; i < first; ++i) most_before = std::max(most_before, samples[i].bytes);
  if (static_cast<double>(end.bytes - most_before) < growth / 2) return false;  // it was as much before
  const auto mean = growth / static_cast<double>(end.step - begin.step);
  size_t num_growing = 0;
  bool grows = false;
  for (size_t part = 0; part < kParts; ++part) {
    const auto length = samples.size() - 1 - first;
    const auto &from = samples[first + part * length / kParts], &to = samples[first + (part + 1) * length / kParts];
    const auto share = static_cast<double>(to.bytes - from.bytes) / (mean * static_cast<double>(to.step - from.step));
    if (share > kMaxShareOfMean) return false;
    grows = share >= kMinShareOfMean;
    if (part == 0 && !grows) return false;  // it begins later
    num_growing += grows ? 1 : 0;
  }
  return grows && num_growing >= kMinGrowing;
}

}  // namespace

void MemorySamples::add(MemorySample sample, Clock::time_point now) {
  samples_.push_back(sample);
  if (samples_.size() == kMaxSamples) {
    for (size_t i = 0; i < kMaxSamples / 2; ++i) samples_[i] = samples_[2 * i + 1];
    samples_.resize(kMaxSamples / 2);
    interval_ *= 2;
  }
  next_ = now + interval_;
}

std::optional<MemoryGrowth> find_growth(const std::vector<MemorySample>& samples) {
  for (size_t first = 0; first + kMinPoints <= samples.size(); ++first) {
    if (!grows_from(samples, first)) continue;
    const auto &begin = samples[first], &end = samples.back();
    return MemoryGrowth{
        .bytes_per_step = (end.bytes - begin.bytes) / (end.step - begin.step), .since = begin.step, .bytes = end.bytes};
  }
  return std::nullopt;
}

std::string to_text(const MemoryGrowth& growth, int64_t num_others, bool may_be_cache) {
  return fmt::format("{} of rank {} grows by {} a step since step {}, and is {} now{}{}",
                     growth.is_of_device ? "device memory" : "memory", growth.rank, format_bytes(growth.bytes_per_step),
                     growth.since, format_bytes(growth.bytes),
                     num_others > 0 ? fmt::format("; that of {} grows, too", counted(num_others, "other rank")) : "",
                     may_be_cache ? "; a cache that fills in the first epoch does so as well" : "");
}

bool is_news(const std::optional<MemoryGrowth>& before, const MemoryGrowth& now) {
  if (!before || before->is_of_device != now.is_of_device || before->rank != now.rank) return true;
  return static_cast<double>(now.bytes) > 1.5 * static_cast<double>(before->bytes);
}

std::optional<int64_t> anonymous_bytes() {
  const auto text = yoke::text_of("/proc/self/statm");
  int64_t size = 0, resident = 0, shared = 0;
  // NOLINTNEXTLINE(cert-err34-c): the kernel writes the numbers
  if (std::sscanf(text.c_str(), "%ld %ld %ld", &size, &resident, &shared) != 3) return std::nullopt;
  static const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  return (resident - shared) * page_bytes;
}

}  // namespace yoke::train::detail
