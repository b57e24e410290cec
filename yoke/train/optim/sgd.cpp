#include "yoke/train/optim/sgd.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "yoke/base/error.h"

namespace yoke::train {
namespace {

constexpr std::string_view kPrefix = "momentum_buffer.";

std::string shape_of(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

void check(const SgdOptions& options) {
  if (!(options.momentum >= 0) || !(options.weight_decay >= 0)) {
    throw Error(ErrorCode::kInvalidArgument, "SGD: momentum {} and weight_decay {} must not be negative",
                options.momentum, options.weight_decay);
  }
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    throw Error(ErrorCode::kInvalidArgument, "SGD: nesterov needs a momentum and no dampening, not {} and {}",
                options.momentum, options.dampening);
  }
}

// One call of the kernel: tensors of one device and dtype, all with a momentum buffer or all without.
struct Group {
  std::vector<at::Tensor> parameters, gradients, momentum_buffers;
};

}  // namespace

Sgd::Sgd(NamedTensors parameters, const SgdOptions& options)
    : parameters_(std::move(parameters)), options_(options), momentum_buffers_(parameters_.size()) {
  check(options);
  std::set<std::string_view> names;
  for (const auto& [name, parameter] : parameters_) {
    if (!names.insert(name).second) throw Error(ErrorCode::kInvalidArgument, "SGD: two parameters named '{}'", name);
    if (!parameter.defined() || !at::isFloatingType(parameter.scalar_type())) {
      throw Error(ErrorCode::kInvalidArgument, "SGD: parameter '{}' is {}, not a tensor of a float dtype", name,
                  parameter.defined() ? shape_of(parameter) : "undefined");
    }
  }
}

void Sgd::step(double lr) {
  if (!(lr >= 0)) throw Error(ErrorCode::kInvalidArgument, "SGD: learning rate {}", lr);
  const at::NoGradGuard no_grad;
  std::map<std::tuple<c10::DeviceType, c10::DeviceIndex, at::ScalarType, bool>, Group> groups;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    auto gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) {
      throw Error(ErrorCode::kInvalidArgument, "SGD: the gradient of '{}' is sparse; only dense ones are taken", name);
    }
    if (gradient.scalar_type() != parameter.scalar_type() || gradient.device() != parameter.device()) {
      throw Error(ErrorCode::kInvalidArgument, "SGD: the gradient of '{}' is {} on {}, the parameter {} on {}", name,
                  shape_of(gradient), gradient.device().str(), shape_of(parameter), parameter.device().str());
    }
    if (gradient.strides() != parameter.strides()) {  // the CPU kernel walks all in the order of their memory
      gradient = at::empty_like(parameter).copy_(gradient);
    }
    const bool first = options_.momentum != 0 && !momentum_buffers_[i].defined();
    if (first) momentum_buffers_[i] = at::empty_like(parameter);
    auto& group = groups[{parameter.device().type(), parameter.device().index(), parameter.scalar_type(), first}];
    group.parameters.push_back(parameter);
    group.gradients.push_back(std::move(gradient));
    if (options_.momentum != 0) group.momentum_buffers.push_back(momentum_buffers_[i]);
  }
  for (const auto& [key, group] : groups) {
    at::_fused_sgd_(group.parameters, group.gradients, group.momentum_buffers, options_.weight_decay, options_.momentum,
                    lr, options_.dampening, options_.nesterov, options_.maximize,
                    /*is_first_step=*/std::get<bool>(key));
  }
}

void Sgd::set_momentum(double momentum) {
  auto options = options_;
  options.momentum = momentum;
  check(options);
  options_ = options;
}

void Sgd::zero_grad() {
  for (auto& [name, parameter] : parameters_) parameter.mutable_grad() = at::Tensor();
}

std::map<std::string, at::Tensor> Sgd::state_dict() const {
  std::map<std::string, at::Tensor> state;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (momentum_buffers_[i].defined()) {
      state.emplace(std::string(kPrefix) + parameters_[i].first, momentum_buffers_[i]);
    }
  }
  return state;
}

void Sgd::load_state_dict(const std::map<std::string, at::Tensor>& state) {
  const at::NoGradGuard no_grad;
  std::map<std::string, size_t> positions;
  for (size_t i = 0; i < parameters_.size(); ++i) positions[std::string(kPrefix) + parameters_[i].first] = i;
  std::vector<at::Tensor> loaded(parameters_.size());
  for (const auto& [name, tensor] : state) {
    const auto found = positions.find(name);
    if (found == positions.end() || options_.momentum == 0) {
      throw Error(ErrorCode::kInvalidArgument, "SGD: state '{}' belongs to no parameter here{}", name,
                  options_.momentum == 0 ? " (this optimizer has no momentum)" : "");
    }
    const auto& parameter = parameters_[found->second].second;
    if (!tensor.defined() || tensor.sizes() != parameter.sizes() || tensor.scalar_type() != parameter.scalar_type()) {
      throw Error(ErrorCode::kInvalidArgument, "SGD: state '{}' is {}, the parameter {}", name,
                  tensor.defined() ? shape_of(tensor) : "undefined", shape_of(parameter));
    }
    loaded[found->second] = at::empty_like(parameter).copy_(tensor);
  }
  momentum_buffers_ = std::move(loaded);
}

}  // namespace yoke::train
