// yoke/scaling/model.h -- predicts the step of many devices from that of one. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "yoke/scaling/link.h"

namespace yoke::scaling {

/// How a training is divided among devices. docs/plan.md says what each sends.
enum class Strategy {
  kDdp,    ///< Gradients are summed while backward runs; each device has everything else.
  kZero1,  ///< Each device has a part of the optimizer's state (ZeRO stage 1).
  kFsdp,   ///< Each device has a part of parameters, gradients and state (ZeRO stage 3).
};
std::string_view name(Strategy strategy);

/// The gradient of a parameter.
struct Gradient {
  double ready_seconds = 0;  ///< Counted from the beginning of backward.
  int64_t bytes = 0;         ///< As it is sent.
};

/// A training step on one device. Its parts follow each other.
struct Workload {
  double forward_seconds = 0;  ///< All that comes before backward: loading, forward, the loss.
  double backward_seconds = 0;
  double optimizer_seconds = 0;
  /// How long the loader of a device takes for a batch while the device computes; 0: it takes no time beside the step.
  double loader_seconds = 0;
  std::vector<Gradient> gradients;  ///< In the order in which they are ready.
  /// The sizes of gradients are not known: `gradients` is a single one, any part of which can be sent alone, and its
  /// parts become ready at an even rate during backward.
  bool is_even = false;

  double step_seconds() const { return forward_seconds + backward_seconds + optimizer_seconds; }
  int64_t gradient_bytes() const;
};

struct ModelOptions {
  Strategy strategy = Strategy::kDdp;
  int64_t bucket_bytes = 25 << 20, first_bucket_bytes = 1 << 20;  ///< The defaults of PyTorch and yoke.
  int64_t num_units = 24;                                         ///< FSDP; see units_of().
  /// How much slower a device computes while it communicates: 0, if both have processors of their own, to 1, if
  /// computing stands still.
  double contention = 0;
  /// How much longer the slowest device of a node computes if all devices of the node compute at the same time.
  double neighbour_slowdown = 1;
};

/// A bucket of gradients, which are sent together when the last one is ready.
using Bucket = Gradient;

/// DistributedDataParallel's buckets: gradients in their order, until a bucket has reached its limit. Even gradients
/// are in 262,144 buckets at most, which are then larger.
std::vector<Bucket> buckets_of(const Workload& workload, int64_t first_bytes, int64_t other_bytes);

/// FSDP's units in the order of backward: as equal as the gradients allow, so fewer than `num_units` if some gradients
/// are larger than a unit.
std::vector<Bucket> units_of(const Workload& workload, int64_t num_units);

/// The share of all parameters that FSDP has gathered at a time: that of the two neighbouring units that are largest
/// together.
double gathered_share(const std::vector<Bucket>& units);

struct StepPrediction {
  double step_seconds = 0;
  double compute_seconds = 0;
  double exposed_seconds = 0;  ///< Communication that did not overlap with computing, or that slowed computing down.
  double loader_wait_seconds = 0;  ///< By how much the loader makes the step longer.
  double communication_seconds = 0;
};

/// A piece of work of one of two queues. A queue does its tasks in their order, one at a time.
struct Task {
  double seconds = 0;                ///< If nothing slows it down.
  std::optional<size_t> after = {};  ///< It begins when this task of the other queue has ended.
};

struct ScheduleResult {
  double seconds = 0;          ///< When both queues are done.
  double waiting_seconds = 0;  ///< How long computing waited for communication, or was slowed down by it.
};

/// While a task of `link` runs, `compute` proceeds at the rate 1 - `contention`.
/// REQUIRES: 0 <= contention <= 1; the tasks do not wait for each other in a circle.
ScheduleResult simulate(std::span<const Task> compute, std::span<const Task> link, double contention);

/// REQUIRES: num_devices >= 1.
StepPrediction predict_step(const Workload& workload, int64_t num_devices, const Topology& topology,
                            const ModelOptions& options);

/// The step of a device if the batch of one device is divided among `num_devices`: all but the optimizer gets shorter.
Workload divided(const Workload& workload, int64_t num_devices);

}  // namespace yoke::scaling
