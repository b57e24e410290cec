#include "yoke/train/record/detail/modes.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/rnn.h>

#include <algorithm>

namespace yoke::train::detail {
namespace {

/// Calls the function with the module if it is of one of the types.
template <class... Types, class Visit>
void if_one_of(const torch::nn::Module& module, const Visit& visit) {
  const auto try_one = [&](const auto* known) {
    if (known != nullptr) visit(*known);
    return known != nullptr;
  };
  (try_one(dynamic_cast<const Types*>(&module)) || ...);
}

}  // namespace

void ModuleModes::add(const torch::nn::Module& module) {
  using namespace torch::nn;
  modules_.push_back(&module);
  if_one_of<DropoutImpl, Dropout2dImpl, Dropout3dImpl, AlphaDropoutImpl, FeatureAlphaDropoutImpl>(
      module, [&](const auto& dropout) { numbers_.push_back(&dropout.options.p()); });
  if_one_of<InstanceNorm1dImpl, InstanceNorm2dImpl, InstanceNorm3dImpl>(
      module, [&](const auto& norm) { numbers_.push_back(&norm.options.momentum()); });
  if_one_of<BatchNorm1dImpl, BatchNorm2dImpl, BatchNorm3dImpl>(
      module, [&](const auto& norm) { momentums_.push_back(&norm.options.momentum()); });
  if_one_of<RNNImpl, LSTMImpl, GRUImpl>(
      module, [&](const auto& network) {  // of the two, LSTM and GRU read the second one, and RNN the first
        numbers_.push_back(&network.options_base.dropout());
        numbers_.push_back(&network.options.dropout());
      });
  if_one_of<MultiheadAttentionImpl>(module,
                                    [&](const auto& attention) { numbers_.push_back(&attention.options.dropout()); });
}

void ModuleModes::find_modules() {
  modules_.clear();
  owned_.clear();
  numbers_.clear();
  momentums_.clear();
  for (const torch::nn::Module& root : roots_) {
    add(root);
    for (const auto& module : root.modules(/*include_self=*/false)) {
      if (!module) continue;
      owned_.emplace_back(module);
      add(*module);
    }
  }
  has_modules_ = true;
}

const std::vector<double>& ModuleModes::now() {
  const auto is_gone = [](const auto& module) { return module.expired(); };
  if (!has_modules_ || std::ranges::any_of(owned_, is_gone)) find_modules();
  values_.clear();
  for (const auto* module : modules_) values_.push_back(module->is_training() ? 1 : 0);
  for (const auto* number : numbers_) values_.push_back(*number);
  for (const auto* momentum : momentums_) values_.push_back(momentum->value_or(-1));
  return values_;
}

std::vector<at::Tensor> ModuleModes::parameters() const {
  std::vector<at::Tensor> parameters;
  for (const torch::nn::Module& root : roots_) {
    for (const auto& parameter : root.parameters()) {
      if (parameter.is_leaf()) parameters.push_back(parameter);
    }
  }
  return parameters;
}

std::string ModuleModes::name_of(const c10::TensorImpl* tensor) const {
  for (const torch::nn::Module& root : roots_) {
    for (const auto& tensors : {root.named_parameters(), root.named_buffers()}) {
      for (const auto& named : tensors) {
        if (named.value().unsafeGetTensorImpl() == tensor) return named.key();
      }
    }
  }
  return "";
}

}  // namespace yoke::train::detail
