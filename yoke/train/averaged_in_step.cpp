#include "yoke/train/detail/averaged_in_step.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace yoke::train::detail {
namespace {

/// A post-accumulate-grad hook like the mark of sharding.cpp: a tensor has at most one, and is never both.
class MoveGradient : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit MoveGradient(at::Tensor place) : place_(std::move(place)) {}
  void operator()(const at::Tensor& parameter) override {
    auto& gradient = parameter.mutable_grad();
    // The optimizer refuses sparse ones, and copies those that are part of a graph.
    if (!place_.defined() || gradient.layout() != at::kStrided || gradient.requires_grad() ||
        gradient.is_same(place_)) {
      return;
    }
    const c10::NoGradGuard no_grad;
    place_.copy_(gradient);
    gradient = place_;
  }
  bool moves() const { return place_.defined(); }

 private:
  const at::Tensor place_;
};

}  // namespace

AveragedInStep::AveragedInStep(at::Tensor parameter, const at::Tensor& place) : parameter_(std::move(parameter)) {
  torch::autograd::impl::set_post_acc_grad_hooks(parameter_, std::make_unique<MoveGradient>(place));
}

AveragedInStep::~AveragedInStep() { torch::autograd::impl::set_post_acc_grad_hooks(parameter_, nullptr); }

InStep averaging_in_step(const at::Tensor& parameter) {
  if (parameter.unsafeGetTensorImpl()->autograd_meta() == nullptr) return InStep::kNot;
  const auto& hook = torch::autograd::impl::post_acc_grad_hooks(parameter);
  const auto* const mark = dynamic_cast<const MoveGradient*>(hook.get());
  if (mark == nullptr) return InStep::kNot;
  return mark->moves() ? InStep::kInSharedMemory : InStep::kByMessages;
}

}  // namespace yoke::train::detail
