#include "yoke/train/tied_linear.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>

#include <cmath>
#include <ostream>

#include "yoke/base/error.h"

namespace yoke::train {
namespace {

at::Tensor weight_of(const torch::nn::Module* source) {
  if (source == nullptr) throw Error(ErrorCode::kInvalidArgument, "TiedLinear: there is no module to be tied to");
  const auto parameters = source->named_parameters(/*recurse=*/false);
  const auto* weight = parameters.find("weight");
  if (weight == nullptr || !weight->defined() || weight->dim() != 2) {
    throw Error(ErrorCode::kInvalidArgument,
                "TiedLinear: {} has no parameter 'weight' of two dimensions; tie to the Embedding or Linear itself",
                source->name());
  }
  return *weight;
}

bool has_bits_of(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& tensor) { return tensor.detach().cpu().contiguous().view(at::kByte); };
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && at::equal(bytes(a), bytes(b));
}

}  // namespace

TiedLinearImpl::TiedLinearImpl(std::shared_ptr<torch::nn::Module> source, const TiedLinearOptions& options)
    : Module("TiedLinear"), source_(std::move(source)) {
  const auto tied = weight_of(source_.get());
  weight = register_parameter("weight", tied, tied.requires_grad());
  if (!options.bias) return;
  bias = register_parameter("bias", at::empty({tied.size(0)}, tied.options().requires_grad(false)));
  const at::NoGradGuard no_grad;
  const double bound = 1 / std::sqrt(static_cast<double>(tied.size(1)));
  bias.uniform_(-bound, bound);
}

at::Tensor TiedLinearImpl::forward(const at::Tensor& input) { return at::linear(input, weight, bias); }

void TiedLinearImpl::pretty_print(std::ostream& stream) const {
  stream << "TiedLinear(in_features=" << weight.size(1) << ", out_features=" << weight.size(0)
         << ", bias=" << (bias.defined() ? "true" : "false") << ")";
}

std::shared_ptr<torch::nn::Module> TiedLinearImpl::clone(const std::optional<at::Device>&) const {
  throw Error(ErrorCode::kFailedPrecondition,
              "TiedLinear: a clone of it alone would have a weight of its own; clone the module that it and its source "
              "are registered in");
}

// Called by Cloneable::clone of a module that contains this layer and its source. The clone's reset() has constructed a
// new layer and a new source, and the new source has received clones of the original parameters. So the new layer's
// weight must be tied again.
void TiedLinearImpl::clone_(torch::nn::Module& other, const std::optional<at::Device>& device) {
  const at::NoGradGuard no_grad;
  const auto* original = dynamic_cast<const TiedLinearImpl*>(&other);
  const auto tied = weight_of(source_.get());
  if (original == nullptr || bias.defined() != original->bias.defined() || !has_bits_of(tied, original->weight)) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        "TiedLinear: its source was not cloned before it, so that the clone's weight would be another; register "
        "both in the same module's reset(), the source first");
  }
  parameters_["weight"] = weight = tied;
  if (bias.defined()) bias.set_data(device ? original->bias.to(*device, false, /*copy=*/true) : original->bias.clone());
  train(original->is_training());
}

}  // namespace yoke::train
