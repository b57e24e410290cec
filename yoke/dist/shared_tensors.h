// yoke/dist/shared_tensors.h -- tensors of all ranks of one host, which every rank reads and writes in place.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace yoke::dist {

class Group;

/// Collective. Makes a tensor [num_elements] of zeros for each rank, and returns those of all ranks, by rank. Returns
/// nothing on all ranks if the ranks of `group` do not share memory, or there is no space in it.
///
/// Ranks order their accesses by collectives of the group: a rank that has left a collective sees what the others wrote
/// before they entered it. Autograd does not know what other ranks write.
std::vector<at::Tensor> share_tensors(Group& group, int64_t num_elements, const at::TensorOptions& options);

/// Writes to `mean` [n] the mean of the elements [first, first + n) of all `tensors`, the same bits as an all-reduce of
/// DistributedDataParallel in shared memory: each one is divided first, then they are added in the order of ranks.
/// REQUIRES: there are at least two tensors, all contiguous, of the CPU and of one floating type.
void write_mean(const at::Tensor& mean, const std::vector<at::Tensor>& tensors, int64_t first);

}  // namespace yoke::dist
