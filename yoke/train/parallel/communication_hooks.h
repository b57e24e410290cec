// yoke/train/parallel/communication_hooks.h -- computes the mean of a bucket's gradients over the ranks.
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

/// Gradients that are communicated together. A bucket is valid only during the call that receives it.
class GradientBucket {
 public:
  explicit GradientBucket(const c10d::GradBucket& bucket) : bucket_(&bucket) {}

  int64_t index() const;  ///< Position among the buckets of a step; constant from the third step on.
  bool is_last() const;
  /// This rank's gradients before division: 1-D, or the sparse gradient of one embedding. A hook may change them.
  at::Tensor flat() const;
  /// Views into a dense flat(), one per parameter, in the parameter's shape. If a parameter is not contiguous
  /// (channels_last), its view has the elements in the parameter's memory order.
  std::vector<at::Tensor> gradients() const;
  std::vector<at::Tensor> parameters() const;  ///< In the order of gradients().

 private:
  const c10d::GradBucket* bucket_;
};

/// Replaces the all-reduce by two functions: the hook, and the function that it returns.
///
/// When a bucket is complete, while backward still computes other buckets, the hook is called and starts the
/// communication. The function that it returns is called after backward. This second function waits for the mean over
/// the ranks, and returns the mean with the shape and dtype of flat(); it may return flat() itself. Both functions are
/// called bucket by bucket, in the same order on all ranks, so either may communicate. The functions run on backward's
/// threads, one at a time.
using CommunicationHook = std::function<std::function<at::Tensor()>(const GradientBucket& bucket)>;

/// Collective. Starts to sum `tensor` over all ranks, in place. The returned function waits for the sum; call it once.
std::function<void()> start_all_reduce(dist::Group& group, const at::Tensor& tensor);

/// Sends gradients as float16: half the bytes. Values above 65504 become infinite, and small values lose bits, so scale
/// the loss. Gradients are divided by the number of ranks before the sum. Source: fp16_compress_hook of PyTorch.
CommunicationHook fp16_hook(dist::Group& group);

/// Like fp16_hook, but with bfloat16, which has float's range and 8 bits of precision.
CommunicationHook bf16_hook(dist::Group& group);

}  // namespace yoke::train
