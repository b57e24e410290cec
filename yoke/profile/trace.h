// yoke/profile/trace.h -- the part of one rank's trace that is needed to find a bottleneck.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace yoke::profile {

/// The kind of an event, found from its category and its name.
enum class Kind : uint8_t {
  kIgnored,
  kStep,              ///< `ProfilerStep#N`
  kLoader,            ///< The training thread runs the data loader.
  kOptimizer,         ///< The training thread runs the optimizer's step.
  kDeviceOptimizer,   ///< A device's stream runs the optimizer's kernels.
  kHostCollective,    ///< A collective on CPU tensors: Gloo, MPI.
  kCollectiveCall,    ///< The host calls a collective, or prepares DistributedDataParallel's buckets.
  kOperation,         ///< An operation of libtorch on the host.
  kSync,              ///< The host waits for a device.
  kCopyCall,          ///< The host runs a call that copies. Unpinned memory is copied by the host.
  kKernel,            ///< Any other work of a device, except the kinds below.
  kPlainMatmul,       ///< A matrix product or convolution in float32 without tensor cores.
  kMemoryBound,       ///< A kernel of a single elementwise operation, reduction or normalization.
  kDeviceCollective,  ///< NCCL's or RCCL's kernel.
  kHostCopy,          ///< A copy between host and device whose host memory is pinned.
  kPageableCopy,      ///< A copy between host and device whose host memory is not pinned.
};
inline constexpr auto kNumKinds = static_cast<size_t>(Kind::kPageableCopy) + 1;

/// Whether the event is work of a device, as all kinds from kKernel on are.
inline bool is_device_work(Kind kind) { return kind >= Kind::kKernel; }

/// In a job of one rank, no rank waits or sends, so collectives count as ordinary work.
inline Kind kind_without_other_ranks(Kind kind) {
  if (kind == Kind::kHostCollective || kind == Kind::kCollectiveCall) return Kind::kOperation;
  return kind == Kind::kDeviceCollective ? Kind::kKernel : kind;
}

struct Name {
  std::string text;
  Kind kind = Kind::kIgnored;
  int64_t step = -1;  ///< N of `ProfilerStep#N`.
};

/// Classifies an event of Kineto, given its category and its name `text`.
Name classify(std::string_view category, std::string text);

/// Kept at 24 bytes, because a trace of 1 GB has four million events.
struct Event {
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  uint32_t name = 0;   ///< Index in Trace::names.
  uint32_t track = 0;  ///< A thread, or a stream of a device; the numbers are arbitrary.
  int64_t end_ns() const { return start_ns + duration_ns; }
};

/// A gradient has been added to that of its parameter, if the trace has shapes (torch.profiler's record_shapes).
struct GradientEvent {
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  int64_t num_elements = 0;
  int64_t element_bytes = 4;
  int64_t end_ns() const { return start_ns + duration_ns; }
};

/// Facts about the process that the program adds: the trace's member "host", written by
/// `profiler.add_metadata_json("host", ...)`. docs/profile.md has the form.
struct HostFacts {
  std::optional<int64_t> num_threads;
  std::optional<int64_t> num_cpus;
  std::optional<int64_t> memory_stall_us;
  std::optional<int64_t> has_operations;  ///< 0 if the trace has only annotations (ProfileDetail::kAnnotations).
};

struct Trace {
  std::string path;
  std::optional<int64_t> rank;
  std::optional<int64_t> world_size;
  HostFacts host;
  std::vector<Name> names;
  std::vector<Event> events;
  std::vector<GradientEvent> gradients;
  int64_t num_without_duration = 0;  ///< Events that were left out because their end or a valid time is missing.
  bool is_truncated = false;         ///< The file ends before the end of the JSON.
};

}  // namespace yoke::profile
