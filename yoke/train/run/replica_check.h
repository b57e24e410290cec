// yoke/train/run/replica_check.h -- finds the rank whose copy of the training differs from that of the others.
//
//     ReplicaCheck check(state);
//     ...
//     if (step % 200 == 0) check(step);   // on all ranks; a Run does this by itself
#pragma once

#include <cstdint>
#include <memory>

#include "yoke/train/warn.h"

namespace yoke::train {

class TrainState;

/// Compares what ranks must hold alike, bit for bit: the parameters of a DistributedDataParallel, those of a
/// ShardedOptimizer, the parts that replicas of a FullyShardedDataParallel hold, the state of their optimizers and the
/// rates of its groups. Wrong rates, other clipping, changed weights and broken memory show there. It also compares
/// what ranks do alike where each has its own part: the steps of the optimizers of a FullyShardedDataParallel, and the
/// limit and the norm of the last clip_grad_norm of a network or a ShardedOptimizer.
///
/// Left out  what is only on one rank, which under ZeRO-1 and FSDP is nearly all; what no such object keeps equal, as
/// in a network that is not wrapped; names that
///           DistributedDataParallelOptions::ignored has; buffers, since the statistics of a batch norm are rank 0's or
///           each rank's own; on a GPU, parameters with sparse gradients, whose kernels round at random.
/// Ranks     collective: all ranks make it of the same state and call it after the same steps.
/// Devices   a hash of each tensor is computed where the tensor is (8 bytes of each are sent), and read once.
/// Errors    kFailedPrecondition, on all ranks with the same text: the rank that differs, the first tensor or rate, and
///           the step. If ranks compute with different numbers of threads or processors, their rounding differs too,
///           and one warning takes the place of the error.
class ReplicaCheck {
 public:
  explicit ReplicaCheck(const TrainState& state, Warn warn = warn_on_stderr);
  ~ReplicaCheck();
  ReplicaCheck(ReplicaCheck&&) noexcept;

  /// `step` is the number of steps made, for the message.
  void operator()(int64_t step);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::train
