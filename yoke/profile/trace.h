// yoke/profile/trace.h -- what one rank's trace holds, reduced to what names a bottleneck.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace yoke::profile {

/// What an event is, by its category and its name.
enum class Kind : uint8_t {
  kIgnored,
  kStep,              ///< `ProfilerStep#N`
  kLoader,            ///< The training thread is in the data loader.
  kOptimizer,         ///< The training thread is in the optimizer's step.
  kDeviceOptimizer,   ///< The part of a device's stream that the optimizer's kernels take.
  kHostCollective,    ///< A collective on CPU tensors: Gloo, MPI.
  kCollectiveCall,    ///< The host prepares a collective: its call, DistributedDataParallel's buckets.
  kOperation,         ///< An operation of libtorch's on the host.
  kSync,              ///< The host waits for a device.
  kCopyCall,          ///< The host is in a call that copies; from memory that is not pinned it copies itself.
  kKernel,            ///< Any other work of a device.
  kPlainMatmul,       ///< A matrix product or convolution in float32 without tensor cores.
  kMemoryBound,       ///< A kernel of one elementwise operation, reduction or normalization.
  kDeviceCollective,  ///< NCCL's or RCCL's kernel.
  kHostCopy,          ///< Between host and device, from pinned memory.
  kPageableCopy,      ///< The same from or to memory that is not pinned.
};
inline constexpr auto kNumKinds = static_cast<size_t>(Kind::kPageableCopy) + 1;

/// Whether a device did it, from kKernel on.
inline bool is_device_work(Kind kind) { return kind >= Kind::kKernel; }

struct Name {
  std::string text;
  Kind kind = Kind::kIgnored;
  int64_t step = -1;  ///< N of `ProfilerStep#N`.
};

/// Classifies what Kineto calls `name` in `category`.
Name classify(std::string_view category, std::string text);

/// 24 bytes, for a trace of 1 GB has four million.
struct Event {
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  uint32_t name = 0;   ///< In Trace::names.
  uint32_t track = 0;  ///< A thread, or a stream of a device; numbers have no meaning.
  int64_t end_ns() const { return start_ns + duration_ns; }
};

/// What the program says about its process: the trace's member "host", written by
/// `profiler.add_metadata_json("host", ...)`. docs/profile.md has the form.
struct HostFacts {
  std::optional<int64_t> num_threads;
  std::optional<int64_t> num_cpus;
  std::optional<int64_t> memory_stall_us;
};

struct Trace {
  std::string path;
  std::optional<int64_t> rank;
  std::optional<int64_t> world_size;
  HostFacts host;
  std::vector<Name> names;
  std::vector<Event> events;
  int64_t num_without_duration = 0;  ///< Events left out: no usable time, or a begin without its end.
  bool is_truncated = false;         ///< The file ends in the middle.
};

}  // namespace yoke::profile
