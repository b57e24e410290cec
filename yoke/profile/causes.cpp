#include "yoke/profile/causes.h"

#include <algorithm>
#include <array>

namespace yoke::profile {
namespace {

/// The thresholds for data loading (5) and communication (10) are those of PyTorch's TensorBoard plugin. The threshold
/// for an idle device (15) is that of TraceLens and nsys-ai. The other thresholds are yoke's own: healthy trainings
/// (tests/profile) stay below them.
constexpr std::array<Rule, kNumCauses> kRules = {{
    {.cause = Cause::kDataLoading,
     .name = "data_loading",
     .threshold_percent = 5,
     .title = "Data loading",
     .reason = "The training thread is in its loader, and the device has nothing to do.",
     .advice =
         "Give the loader more workers (num_workers, persistent_workers), or make samples cheaper: decode them once.",
     .host_reason = "The training thread is in its loader."},
    {.cause = Cause::kCommunication,
     .name = "communication",
     .threshold_percent = 10,
     .title = "Communication",
     .reason = "Collectives take this time even on the rank that comes last to them, and nothing computes meanwhile.",
     .advice = "Send less or hide it: larger buckets or batches, gradient accumulation, bfloat16 gradients."},
    {.cause = Cause::kSkew,
     .name = "skew",
     .threshold_percent = 10,
     .title = "Waiting for a slow rank",
     .reason = "Ranks wait in collectives for the rank that comes last.",
     .advice =
         "Give all ranks equal work, and look at the late one: its data, its device's clock, other programs there."},
    {.cause = Cause::kSmallOperations,
     .name = "small_operations",
     .threshold_percent = 15,
     .title = "Launching small operations",
     .reason = "Between kernels the device waits until the host has launched the next one.",
     .advice = "Do more with each operation: vectorize loops, torch.compile or CUDA graphs, a larger batch.",
     .host_reason = "Operations that compute for less than 20 us take this time, with the way from each to the next."},
    {.cause = Cause::kHostSync,
     .name = "host_sync",
     .threshold_percent = 10,
     .title = "Waiting of the host for the device",
     .reason = "The host waits until the device is done, and then the device waits until the host launches more.",
     .advice = "Leave results on the device: no .item(), .cpu() or print of a tensor in the step; log every N steps."},
    {.cause = Cause::kDeviceCopy,
     .name = "device_copy",
     .threshold_percent = 10,
     .title = "Copying between host and device",
     .reason = "Data are copied between host and device, and nothing computes meanwhile.",
     .advice = "Copy from pinned memory while the device computes: pin_memory=True, non_blocking=True."},
    {.cause = Cause::kThreads,
     .name = "threads",
     .threshold_percent = 15,
     .title = "Too few threads",
     .reason = "Large operations compute with fewer threads than the rank has processors.",
     .advice = "Give each rank the processors that it may use: OMP_NUM_THREADS, torch.set_num_threads."},
    {.cause = Cause::kPaging,
     .name = "paging",
     .threshold_percent = 5,
     .title = "Waiting for memory",
     .reason = "Processes waited for memory (/proc/pressure/memory), as the program recorded in its trace.",
     .advice = "Use less memory than there is: fewer workers, a smaller batch, no other program on this machine."},
    {.cause = Cause::kPrecision,
     .name = "precision",
     .threshold_percent = 15,
     .title = "Float32 without tensor cores",
     .reason = "Matrix products and convolutions run in float32 on ordinary units; tensor cores are 8 times as fast.",
     .advice = "Use tensor cores: torch.set_float32_matmul_precision('high'), or autocast with bfloat16."},
    {.cause = Cause::kOptimizer,
     .name = "optimizer",
     .threshold_percent = 30,
     .title = "The optimizer",
     .reason = "This is the whole of its step; the fastest one still reads and writes every parameter once.",
     .advice = "Use its fused form (fused=True) if it has one, shard its state over the ranks, or step less often."},
    {.cause = Cause::kMemoryBandwidth,
     .name = "memory_bandwidth",
     .threshold_percent = 20,
     .title = "Memory bandwidth",
     .reason =
         "Elementwise kernels that follow each other each read and write all their data; one kernel does so once.",
     .advice = "Fuse elementwise operations and normalizations: torch.compile, fused layers, channels_last."},
}};

// They are in the order of causes, so that each is at its index.
static_assert(std::ranges::adjacent_find(kRules, std::ranges::greater_equal{}, &Rule::cause) == kRules.end());

}  // namespace

const Rule& rule_of(Cause cause) { return kRules[static_cast<size_t>(cause)]; }

}  // namespace yoke::profile
