// yoke/train/parallel/communication_hooks.h -- how the gradients of a bucket become their mean over the ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace c10d {
class GradBucket;
}
namespace yoke::dist {
class Group;
}

namespace yoke::train {

/// Gradients that are communicated together; valid during the call that is given it.
class GradientBucket {
 public:
  explicit GradientBucket(const c10d::GradBucket& bucket) : bucket_(&bucket) {}

  int64_t index() const;  ///< Position among the buckets of a step; stable from the third step on.
  bool is_last() const;
  /// This rank's gradients, not divided by anything: 1-D, or the sparse gradient of one embedding. A hook may change
  /// it.
  at::Tensor flat() const;
  /// Views into a dense flat(), one for each parameter, in its shape; those of a parameter that is not contiguous
  /// (channels_last) have its elements in the order of its memory.
  std::vector<at::Tensor> gradients() const;
  std::vector<at::Tensor> parameters() const;  ///< Beside gradients().

 private:
  const c10d::GradBucket* bucket_;
};

/// Takes the place of the all-reduce, in two parts.
///
/// The hook itself is called when a bucket is complete, while backward still computes others: it starts the
/// communication. The function that it returns is called after backward: it waits, and returns the mean over the ranks,
/// with shape and dtype of flat(), which it may be. Both parts are called bucket by bucket, in an order that is the
/// same on all ranks, so either may communicate. They run on the threads of backward, one at a time.
using CommunicationHook = std::function<std::function<at::Tensor()>(const GradientBucket& bucket)>;

/// Collective. Starts to sum `tensor` over all ranks, in place; what it returns waits for the end, and is called once.
std::function<void()> start_all_reduce(dist::Group& group, const at::Tensor& tensor);

/// Sends gradients as float16: half the bytes. Values above 65504 become infinite, small ones lose bits: scale the
/// loss. They are divided by the number of ranks before they are summed. Source: fp16_compress_hook of PyTorch.
CommunicationHook fp16_hook(dist::Group& group);

/// The same as bfloat16: the range of float, 8 bits of precision.
CommunicationHook bf16_hook(dist::Group& group);

}  // namespace yoke::train
