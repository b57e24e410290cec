// yoke/train/shard/detail/clip.h -- clipping gradients of which every rank has a part.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace yoke::dist {
class Group;
}

namespace yoke::train {

/// Collective. Scales `gradients`, this rank's part of all, so that the norm of the whole is at most `max_norm`; gives
/// what it was, a float scalar on the group's device, without waiting for that device.
at::Tensor clip_sharded_grad_norm(dist::Group& group, const std::vector<at::Tensor>& gradients, double max_norm);

}  // namespace yoke::train
