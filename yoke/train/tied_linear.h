// yoke/train/tied_linear.h -- a linear layer whose weight is another module's parameter.
//
//     embedding = register_module("embedding", torch::nn::Embedding(num_tokens, width));
//     head = register_module("head", TiedLinear(embedding.ptr()));    // [..., width] -> [..., num_tokens]
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>

namespace yoke::train {

struct TiedLinearOptions {
  bool bias = false;  ///< Adds a bias, initialised like Linear's.
};

/// y = x W^T + b, where W is the parameter "weight" of `source`, an Embedding or a Linear: Python writes this as
/// `head.weight = embedding.weight`.
///
/// Parameter  one tensor under the same two names as in Python. Its gradient is the sum of both uses, and optimizers
///            and averages handle it once (see distinct in named_tensors.h). The state contains it under both names,
///            like Python's state_dict, so files can be exchanged. to() moves and converts the tensor once and keeps
///            the tie. clone() of a module that contains both modules keeps the tie, if its reset() registers the
///            source before this module.
/// Random     no random numbers are drawn for the weight; Python draws a Linear's weight and drops it.
/// Errors     kInvalidArgument: the source has no parameter "weight" of two dimensions. In clone(),
///            kFailedPrecondition: only this module is cloned, or its source was not cloned before it.
class TiedLinearImpl : public torch::nn::Module {
 public:
  explicit TiedLinearImpl(std::shared_ptr<torch::nn::Module> source, const TiedLinearOptions& options = {});

  /// [..., in] to [..., out].
  at::Tensor forward(const at::Tensor& input);

  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& device = std::nullopt) const override;
  void pretty_print(std::ostream& stream) const override;

  at::Tensor weight;  ///< [out, in], shared with the source.
  at::Tensor bias;    ///< [out], or undefined.

 private:
  void clone_(torch::nn::Module& other, const std::optional<at::Device>& device) override;

  std::shared_ptr<torch::nn::Module> source_;
};

class TiedLinear : public torch::nn::ModuleHolder<TiedLinearImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  using Impl = TiedLinearImpl;
};

}  // namespace yoke::train
