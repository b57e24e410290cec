#include "yoke/train/parallel/communication_hooks.h"

#include <exception>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

#include "yoke/dist/group.h"

namespace yoke::train {
namespace {

CommunicationHook compressed_to(c10::ScalarType dtype, dist::Group& group) {
  return [dtype, &group](const GradientBucket& bucket) -> std::function<at::Tensor()> {
    auto gradients = bucket.flat();
    if (gradients.is_sparse()) {  // sent unchanged, because a smaller dtype would not shrink the indices
      gradients.div_(group.size());
      return [gradients, wait = start_all_reduce(group, gradients)] { return wait(), gradients; };
    }
    auto small = gradients.to(dtype).div_(group.size());
    auto wait = start_all_reduce(group, small);
    return [gradients, small, wait = std::move(wait)] { return wait(), gradients.copy_(small); };
  };
}

}  // namespace

int64_t GradientBucket::index() const { return static_cast<int64_t>(bucket_->getIndex()); }
bool GradientBucket::is_last() const { return bucket_->isLast(); }
at::Tensor GradientBucket::flat() const { return bucket_->getBuffer(); }
std::vector<at::Tensor> GradientBucket::gradients() const { return bucket_->getGradients(); }
std::vector<at::Tensor> GradientBucket::parameters() const { return bucket_->getParameters(); }

std::function<void()> start_all_reduce(dist::Group& group, const at::Tensor& tensor) {
  try {
    std::vector<at::Tensor> tensors = {tensor};
    return [&group, work = group.process_group().allreduce(tensors)] {
      try {
        work->wait();
      } catch (...) {
        group.explain(std::current_exception());
      }
    };
  } catch (...) {
    group.explain(std::current_exception());
  }
}

CommunicationHook fp16_hook(dist::Group& group) { return compressed_to(c10::kHalf, group); }
CommunicationHook bf16_hook(dist::Group& group) { return compressed_to(c10::kBFloat16, group); }

}  // namespace yoke::train
