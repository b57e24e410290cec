// How it works: placeholders carry the dispatch key TESTING_ONLY_GenericWrapper, which libtorch itself does not use and
// which comes before autograd and all devices. A fallback for this key throws, so only operators with a placeholder
// among their arguments are affected.
#include "yoke/train/shard/detail/refusals.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/nn/module.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "yoke/base/error.h"

namespace yoke::train {
namespace {

constexpr auto kPlaceholderKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

void refuse_placeholder(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& name = op.schema().name();
  // libtorch's zero_grad detaches the gradient before it drops it; set_data compares the types of tensors.
  if (name == "aten::detach" || name == "aten::detach_" || name == "aten::_has_compatible_shallow_copy_type") {
    const c10::impl::ExcludeDispatchKeyGuard below(kPlaceholderKey);
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kPlaceholderKey), stack);
    return;
  }
  constexpr std::array<std::string_view, 5> kSetters = {"aten::zero_", "aten::copy_", "aten::fill_", "aten::uniform_",
                                                        "aten::normal_"};
  const bool sets = std::ranges::find(kSetters, name) != kSetters.end();
  throw Error(
      ErrorCode::kFailedPrecondition,
      "{}{} was called with a parameter of a sharded model, or with its gradient, which have no elements outside "
      "of their unit's forward and backward, so that sums and norms over them, torch::optim's optimizers and "
      "clip_grad_norm_ would be wrong in silence: call the model as `net(x)`, make the optimizer over the "
      "FullyShardedDataParallel (train::AdamW optimizer(net)), clip with net.clip_grad_norm(max_norm), take "
      "norms with train::norms(net.parameters()), and whole values with gather_tensors(world, "
      "named_tensors(model))",
      sets ? "to set a parameter's value, set it before the model is sharded, load it with load_module, or set "
             "this rank's part of it, which is in net.parameters(): "
           : "",
      name);
}

void register_refusal() {
  static const auto kept = c10::Dispatcher::singleton().registerFallback(
      kPlaceholderKey, c10::KernelFunction::makeFromBoxedFunction<&refuse_placeholder>(), "yoke");
}

struct SaveGuard : torch::nn::Module {
  void save(torch::serialize::OutputArchive&) const override { refuse(); }
  void load(torch::serialize::InputArchive&) override { refuse(); }
  [[noreturn]] static void refuse() {
    throw Error(ErrorCode::kFailedPrecondition,
                "torch::save and torch::load do not know the parts of a sharded model, whose parameters have no "
                "elements here: save and load it with a TrainState and a CheckpointFolder, or on all ranks with "
                "gather_tensors(world, named_tensors(model)) and load_module");
  }
};

}  // namespace

at::Tensor make_placeholder(const at::TensorOptions& options) {
  register_refusal();
  const auto empty = at::empty({0}, options);
  return at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(empty.storage()), empty.key_set() | c10::DispatchKeySet(kPlaceholderKey), empty.dtype());
}

std::shared_ptr<torch::nn::Module> save_guard() { return std::make_shared<SaveGuard>(); }

}  // namespace yoke::train
