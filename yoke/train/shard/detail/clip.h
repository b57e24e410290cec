// yoke/train/shard/detail/clip.h -- clips gradients that are divided between ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace yoke::dist {
class Group;
}

namespace yoke::train {

/// Collective. Scales `gradients`, this rank's parts, so that the norm over all ranks is at most `max_norm`. Returns
/// the norm before scaling as a float scalar on the group's device, without waiting for the device.
at::Tensor clip_sharded_grad_norm(dist::Group& group, const std::vector<at::Tensor>& gradients, double max_norm);

}  // namespace yoke::train
