#include "yoke/train/sharding.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "yoke/base/error.h"

namespace yoke::train {
namespace {

/// Marks a tensor as sharded, and holds its Sharding. The mark is a post-accumulate-grad hook because libtorch keeps at
/// most one such hook per tensor.
class Mark : public torch::autograd::PostAccumulateGradHook {
 public:
  Mark(Sharding sharding, std::function<void()> on_gradient)
      : sharding_(std::move(sharding)), on_gradient_(std::move(on_gradient)) {}
  void operator()(const at::Tensor&) override {
    if (on_gradient_) on_gradient_();
  }
  const Sharding& sharding() const { return sharding_; }

 private:
  Sharding sharding_;
  std::function<void()> on_gradient_;
};

}  // namespace

const Sharding* sharding_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.unsafeGetTensorImpl()->autograd_meta() == nullptr) return nullptr;
  const auto* mark = dynamic_cast<const Mark*>(torch::autograd::impl::post_acc_grad_hooks(tensor).get());
  return mark == nullptr ? nullptr : &mark->sharding();
}

void mark_sharded(const at::Tensor& tensor, Sharding sharding, std::function<void()> on_gradient) {
  torch::autograd::impl::set_post_acc_grad_hooks(tensor,
                                                 std::make_unique<Mark>(std::move(sharding), std::move(on_gradient)));
}

void unmark_sharded(const at::Tensor& tensor) {
  if (sharding_of(tensor) != nullptr) torch::autograd::impl::set_post_acc_grad_hooks(tensor, nullptr);
}

std::vector<int64_t> shape_of_part(const std::vector<int64_t>& whole, int64_t num_elements) {
  std::vector<int64_t> shape(std::max<size_t>(whole.size(), 1), 1);
  shape.back() = num_elements;
  return shape;
}

std::vector<int64_t> whole_shape(const at::Tensor& tensor) {
  const auto* sharding = sharding_of(tensor);
  return sharding == nullptr ? tensor.sizes().vec() : sharding->shape;
}

void require_whole(const std::string& what, const std::string& name, const at::Tensor& tensor) {
  require_elements(what, name, tensor);
  if (const auto* sharding = sharding_of(tensor); sharding != nullptr && sharding->role == Sharding::Role::kPart) {
    throw Error(ErrorCode::kInvalidArgument,
                "{}: '{}' is this rank's part of a tensor that is divided between ranks, not the whole: save it as a "
                "part of a TrainState, or make it whole first (gather_tensors)",
                what, name);
  }
}

void require_elements(const std::string& what, const std::string& name, const at::Tensor& tensor) {
  const auto* sharding = sharding_of(tensor);
  if (sharding == nullptr || sharding->role == Sharding::Role::kPart || tensor.numel() > 0) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      "{}: '{}' is a parameter of a sharded model, and has no elements here: use the FullyShardedDataParallel's "
      "parameters() to train, clip and average, a TrainState to save and load; gather_tensors makes it whole",
      what, name);
}

}  // namespace yoke::train
