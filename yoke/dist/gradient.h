// yoke/dist/gradient.h -- collectives through which backward passes, such as the all-gather of a contrastive loss.
//
//     auto all = dist::gradient::all_gather(world, features).flatten(0, 1);  // [batch, dim] gives [size * batch, dim]
//     auto loss = at::cross_entropy_loss(features.matmul(all.t()) / 0.1, labels);
//     loss.backward();  // on all ranks
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "yoke/dist/group.h"

/// Each function does what the member of Group with the same name does, but returns a new tensor, and its backward
/// communicates in the opposite direction.
///
/// Gradients are those of the sum of all ranks' losses: a rank's gradient also has what its tensor did to the losses of
///          others. DistributedDataParallel then averages as usual, which gives the gradient of the mean of the losses.
///          Without such an average, a loss that all ranks compute alike counts `size` times.
/// Ranks    collective, and so is their backward: what one rank includes in its backward, all must include. This holds
///          for a rank whose own tensor needs no gradient, too, so results need a gradient on all ranks, unless
///          gradients are disabled or the dtype has none. A rank that does not use a result adds 0 * result.sum() to
///          its loss. On one thread, autograd runs the nodes of a backward in the reverse order of their creation; so
///          ranks that call these functions in the same order communicate in the same order in backward.
/// Tensors  may have any strides. Integers and bools have no gradient: their result is that of Group's member. For
///          tensors that need no gradient call Group's member, which makes backward shorter.
/// Twice    the gradients have gradients (create_graph), except for messages.
/// Errors   those of Group. kInvalidArgument: a tensor is undefined, `op` has no gradient, or a shape does not fit.
///          Backward: kFailedPrecondition: the World has ended, or create_graph with messages.
/// Lifetime backward needs the World, but not the Group object.
/// Source   Gradients as those of torch.distributed.nn.functional in PyTorch.
namespace yoke::dist::gradient {

/// Collective. Returns the sum or the mean of the ranks' tensors [...]. Backward is the same on the gradients.
/// Errors  kInvalidArgument: kMin and kMax, because equal values on two ranks leave open whose the gradient is;
///         all_gather(group, tensor).amax(0) shares it among them.
at::Tensor all_reduce(Group& group, const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);

/// Collective. Returns the tensor of `root` [...], which has the same shape and dtype on all ranks. Backward adds the
/// gradients of all ranks on `root`; those of the other ranks' tensors are zero.
at::Tensor broadcast(Group& group, const at::Tensor& tensor, int64_t root = 0);

/// Collective. Returns [size, ...] of tensors [...] that have the same shape on all ranks. Backward adds what all ranks
/// give for this rank's row.
at::Tensor all_gather(Group& group, const at::Tensor& tensor);

struct GatheredRows {
  at::Tensor rows;    ///< [all rows, ...], in the order of the ranks.
  int64_t first = 0;  ///< Number of this rank's first row.
};
/// Collective. Like all_gather, for tensors [rows, ...] whose number of rows differs between ranks, and may be 0.
/// Exchanges the numbers through Gloo first.
/// Errors  kInvalidArgument on all ranks: tensors differ in more than the number of rows (the message names a rank).
GatheredRows all_gather_rows(Group& group, const at::Tensor& tensor);

/// Collective. Divides the sum or the mean of the ranks' tensors [size * n, ...], and returns this rank's part [n,
/// ...]. Backward gathers the gradients.
at::Tensor reduce_scatter(Group& group, const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);

/// Collective. Sends rows of `tensor` [rows, ...] to each rank, and returns the rows from each rank, in rank order.
/// Backward sends the gradients of the rows back.
at::Tensor all_to_all(Group& group, const at::Tensor& tensor, const Splits& splits = {});

/// Sends `tensor` to the rank `to`, which calls receive(). Returns a zero [] that must be added to this rank's loss, or
/// be it: its backward waits for the gradient of what was sent, and passes it on.
///
///     auto loss = dist::gradient::send(group, first_half(x), 1);           // on rank 0
///     auto loss = last_half(dist::gradient::receive(group, like, 0));      // on rank 1
///     loss.backward();                                                     // on both
///
/// It may wait for the receiver: of two ranks that send to each other, one must receive first.
[[nodiscard]] at::Tensor send(Group& group, const at::Tensor& tensor, int64_t to);
/// Returns what the rank `from` sends. `like` has the shape, dtype and device of it; its values are not used. Backward
/// sends the gradient to `from`.
at::Tensor receive(Group& group, const at::Tensor& like, int64_t from);

}  // namespace yoke::dist::gradient
