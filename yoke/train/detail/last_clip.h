// yoke/train/detail/last_clip.h -- what the ranks of a network have clipped alike, for a ReplicaCheck.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace yoke::train::detail {

/// A call of clip_grad_norm of a DistributedDataParallel, a FullyShardedDataParallel or a ShardedOptimizer. All of its
/// ranks give the same limit and find the same norm.
struct LastClip {
  double max_norm = 0;
  at::Tensor norm;             ///< Undefined if there was none.
  std::vector<int64_t> ranks;  ///< The ranks of the World that clip together.
};

/// The last one on this thread.
LastClip& last_clip();

}  // namespace yoke::train::detail
