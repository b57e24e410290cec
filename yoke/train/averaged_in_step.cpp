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
  MoveGradient(at::Tensor place, InStep how) : place_(std::move(place)), how_(how) {}
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
  InStep how() const { return how_; }

 private:
  const at::Tensor place_;
  const InStep how_;
};

}  // namespace

AveragedInStep::AveragedInStep(at::Tensor parameter, const at::Tensor& place, InStep how)
    : parameter_(std::move(parameter)) {
  auto hook = std::make_unique<MoveGradient>(place, how);
  hook_ = hook.get();
  torch::autograd::impl::set_post_acc_grad_hooks(parameter_, std::move(hook));
}

AveragedInStep::~AveragedInStep() {
  // A new optimizer that takes the place of this one's has marked the parameter before this one ends.
  const auto* const now = dynamic_cast<MoveGradient*>(torch::autograd::impl::post_acc_grad_hooks(parameter_).get());
  if (now == hook_) torch::autograd::impl::set_post_acc_grad_hooks(parameter_, nullptr);
}

InStep averaging_in_step(const at::Tensor& parameter) {
  if (parameter.unsafeGetTensorImpl()->autograd_meta() == nullptr) return InStep::kNot;
  const auto& hook = torch::autograd::impl::post_acc_grad_hooks(parameter);
  const auto* const mark = dynamic_cast<const MoveGradient*>(hook.get());
  return mark == nullptr ? InStep::kNot : mark->how();
}

}  // namespace yoke::train::detail
