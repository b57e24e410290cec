#include "yoke/train/optim/optimizer.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/record_function.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "yoke/base/error.h"
#include "yoke/train/cpu_speed.h"
#include "yoke/train/detail/describe.h"
#include "yoke/train/detail/recording.h"
#include "yoke/train/detail/step_watch.h"
#include "yoke/train/sharding.h"
#include "yoke/train/warn.h"
#include "yoke/train/watch/step_end.h"

namespace yoke::train {
namespace {

constexpr auto kLr = "lr";  // the name in Python's param_groups

bool is_supported(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided) return false;
  const auto dtype = tensor.scalar_type();
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16;
}

// The CPU kernels read the memory of each tensor in order from its first element, so it must not have gaps.
bool has_fused_kernel(const at::Tensor& parameter) {
  return (parameter.is_cpu() || parameter.is_cuda()) && parameter.is_non_overlapping_and_dense();
}

void check_lr(const std::string& name, double lr) {
  if (std::isfinite(lr)) return;
  throw Error(ErrorCode::kInvalidArgument, "{}: learning rate {} must be a finite number", name, lr);
}

// Returns the gradient without checks or reference counting, because a step reads every gradient twice.
const at::Tensor& gradient_of(const at::Tensor& parameter) { return parameter.unsafeGetTensorImpl()->grad(); }

std::optional<at::Tensor> on_device(const at::Tensor& tensor, const at::Device& device) {
  if (!tensor.defined()) return std::nullopt;
  return tensor.device() == device ? tensor : tensor.to(device, /*non_blocking=*/!device.is_cpu());
}

}  // namespace

std::pair<NamedTensors, NamedTensors> split(
    const NamedTensors& parameters,
    const std::function<bool(const std::string& name, at::IntArrayRef shape)>& is_first) {
  std::pair<NamedTensors, NamedTensors> result;
  for (const auto& named : parameters) {
    (is_first(named.first, whole_shape(named.second)) ? result.first : result.second).push_back(named);
  }
  return result;
}

Optimizer::Optimizer(Traits traits, std::vector<std::pair<NamedTensors, double>> groups_and_lrs)
    : traits_(std::move(traits)) {
  std::set<std::string> names;
  std::unordered_map<const c10::TensorImpl*, size_t> taken;
  for (auto& [parameters, lr] : groups_and_lrs) {
    check_lr(traits_.name, lr);
    if (lr < 0) {  // as in PyTorch, which accepts a negative rate only for an optimizer that exists
      throw Error(ErrorCode::kInvalidArgument,
                  "{}: learning rate {} must not be negative; to maximize the loss, set the option 'maximize'",
                  traits_.name, lr);
    }
    for (auto& [name, parameter] : parameters) {
      if (!names.insert(name).second) {
        throw Error(ErrorCode::kInvalidArgument, "{}: two parameters named '{}'", traits_.name, name);
      }
      require_elements(traits_.name, name, parameter);
      if (!is_supported(parameter)) {
        throw Error(ErrorCode::kInvalidArgument,
                    "{}: parameter '{}' is {}, not a dense tensor of float, double, half or bfloat16", traits_.name,
                    name, describe(parameter));
      }
      if (!parameter.is_leaf() && !parameter.retains_grad()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "{}: parameter '{}' is the result of an operation, whose gradient is not kept: give its leaf, or "
                    "detach it",
                    traits_.name, name);
      }
      if (const auto [first, is_new] = taken.try_emplace(parameter.unsafeGetTensorImpl(), slots_.size()); !is_new) {
        if (slots_[first->second].group == lrs_.size()) continue;
        throw Error(ErrorCode::kInvalidArgument, "{}: '{}' and '{}' are one parameter, in two groups", traits_.name,
                    parameters_[first->second].first, name);
      }
      Slot slot;
      slot.parameter = parameter;
      slot.group = lrs_.size();
      const bool is_half_on_cpu = parameter.is_cpu() && at::isReducedFloatingType(parameter.scalar_type());
      slot.is_fused = traits_.is_fused && has_fused_kernel(parameter) && (traits_.fuses_half_on_cpu || !is_half_on_cpu);
      slots_.push_back(std::move(slot));
      parameters_.emplace_back(name, parameter);
    }
    lrs_.push_back(lr);
  }
  if (std::ranges::any_of(slots_, [](const Slot& slot) { return slot.parameter.is_cpu(); })) keep_freed_memory();
}

void Optimizer::check_group(size_t group) const {
  if (group < lrs_.size()) return;
  throw Error(ErrorCode::kInvalidArgument, "{}: group {} of {}", traits_.name, group, lrs_.size());
}

bool Optimizer::has_stepped(size_t group) const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [group](const Slot& slot) { return slot.group == group && slot.has_state; });
}

double Optimizer::lr(size_t group) const {
  check_group(group);
  return lrs_[group];
}

void Optimizer::set_lr(double lr) {
  detail::refuse_to_record(traits_.name, "set_lr(lr)", "call it before the recorded step");
  check_lr(traits_.name, lr);
  for (auto& group_lr : lrs_) group_lr = lr;
}

void Optimizer::set_lr(size_t group, double lr) {
  detail::refuse_to_record(traits_.name, "set_lr(group, lr)", "call it before the recorded step");
  check_group(group);
  check_lr(traits_.name, lr);
  lrs_[group] = lr;
}

void Optimizer::step() { apply_and_end({}); }

/// A recorded step calls this function in each replay, so rates, options and step counts are those of that moment.
void Optimizer::apply_and_end(const GradScale& given) {
  auto* recording = detail::recording_on_this_thread();
  if (recording == nullptr) {
    apply(given);
    end_step(this);
    return;
  }
  detail::HostCall call{.name = traits_.name + ".step", .tensors = {given.scale, given.found_inf}, .owner = life_};
  for (const auto& slot : slots_) call.parameters.push_back(slot.parameter);
  call.run = [this](const std::vector<at::Tensor>& scale) {
    apply({scale[0], scale[1]});
    end_step(this);
  };
  call.written = [this] {
    std::vector<at::Tensor> tensors;
    for (const auto& slot : slots_) {
      tensors.push_back(slot.parameter);
      tensors.insert(tensors.end(), slot.states.begin(), slot.states.end());
      if (slot.step.defined()) tensors.push_back(slot.step);
    }
    return tensors;
  };
  recording->call(std::move(call));
}

void Optimizer::step(double lr) {
  detail::refuse_to_record(traits_.name, "step(lr)", "call set_lr(lr) before the recorded step, and step() in it");
  set_lr(lr);
  step();
}

void Optimizer::step(const GradScale& scale) {
  for (const auto& tensor : {scale.scale, scale.found_inf}) {
    if (tensor.defined() && (tensor.numel() != 1 || tensor.scalar_type() != at::kFloat)) {
      throw Error(ErrorCode::kInvalidArgument, "{}: a GradScale holds single floats, not {}", traits_.name,
                  describe(tensor));
    }
  }
  // 0-dim, like the step counts from which found_inf is subtracted.
  const auto number = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.reshape({}) : tensor; };
  apply_and_end({number(scale.scale), number(scale.found_inf)});
}

void Optimizer::zero_grad() {
  auto* recording = detail::recording_on_this_thread();
  for (const auto& slot : slots_) {
    if (recording != nullptr) recording->use_gradient(slot.parameter);
    if (gradient_of(slot.parameter).defined()) slot.parameter.mutable_grad().reset();
  }
}

/// Notes which parameters have gradients. Returns whether the step has to know the value of found_inf.
bool Optimizer::note_gradients() {
  bool must_read = false;
  for (auto& slot : slots_) {
    const auto& gradient = gradient_of(slot.parameter);
    const auto kind = !gradient.defined()                 ? GradientKind::kNone
                      : gradient.layout() == c10::kSparse ? GradientKind::kSparse
                                                          : GradientKind::kDense;
    is_planned_ = is_planned_ && kind == slot.gradient;
    slot.gradient = kind;
    if (kind == GradientKind::kNone) continue;
    must_read = must_read || !slot.is_fused || kind == GradientKind::kSparse ||
                (traits_.starts_from_gradient && !slot.has_state);
  }
  return must_read;
}

void Optimizer::apply(GradScale scale) {
  at::RecordFunction annotation(at::RecordScope::USER_SCOPE);
  if (annotation.isActive()) annotation.before("Optimizer.step#" + traits_.name);
  // Skips autograd's wrappers of the kernels, so no graph is built. end_batch() increases the version counters instead.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const bool must_read = note_gradients() || (scale.found_inf.defined() && scale.found_inf.is_cpu());
  if (scale.found_inf.defined() && must_read) {
    if (scale.found_inf.item<float>() == 1) return;
    scale.found_inf.reset();
  }
  if (!is_planned_) plan();
  for (auto& batch : batches_) {
    for (size_t i = 0; i < batch.slots.size(); ++i) batch.gradients[i] = checked_gradient(batch.slots[i]);
  }
  for (auto& batch : batches_) run(batch, scale);
}

void Optimizer::plan() {
  using Key = std::tuple<size_t, c10::DeviceType, c10::DeviceIndex, at::ScalarType, bool, bool, bool>;
  std::map<Key, Batch> batches;
  for (size_t i = 0; i < slots_.size(); ++i) {
    auto& slot = slots_[i];
    // If a model is sharded after its optimizer is constructed, its parameters have no gradients, and nothing would be
    // updated.
    require_elements(traits_.name, parameters_[i].first, slot.parameter);
    if (slot.gradient == GradientKind::kNone) continue;
    const bool is_sparse = slot.gradient == GradientKind::kSparse, is_first_step = !slot.has_state;
    if (is_first_step) start_state(slot);
    const auto device = slot.parameter.device();
    auto& batch = batches[{slot.group, device.type(), device.index(), slot.parameter.scalar_type(), is_sparse,
                           slot.is_fused, is_first_step}];
    batch.group = slot.group;
    batch.is_first_step = is_first_step;
    batch.is_fused = slot.is_fused && !is_sparse;
    batch.is_sparse = is_sparse;
    batch.slots.push_back(i);
    batch.parameters.push_back(slot.parameter);
    batch.states.resize(3);
    for (size_t kind = 0; kind < slot.states.size(); ++kind) batch.states[kind].push_back(slot.states[kind]);
    if (traits_.has_steps) batch.steps.push_back(slot.step);
  }
  batches_.clear();
  pieces_.clear();
  for (auto& [key, batch] : batches) {
    batch.gradients.resize(batch.slots.size());
    batches_.push_back(std::move(batch));
  }
  is_planned_ = true;
}

/// Makes the initial value of a state: a number, or a tensor shaped like the parameter or this rank's part of it.
at::Tensor Optimizer::new_state(const Slot& slot, const StateKind& kind) {
  if (kind.is_number) return new_number(slot, kind.initial);
  const auto state = at::full_like(slot.parameter, kind.initial);
  if (const auto* sharding = sharding_of(slot.parameter)) mark_sharded(state, *sharding);
  return state;
}

/// Fused kernels need the step count on the parameter's device. For other parameters the step count stays on the CPU,
/// because code there reads its value.
at::Tensor Optimizer::new_number(const Slot& slot, double initial) {
  const auto device = slot.is_fused ? slot.parameter.device() : at::Device(at::kCPU);
  return at::full({}, initial, at::dtype(at::kFloat).device(device));
}

StepGradients Optimizer::step_gradients() {
  const auto* sharding = parameters_.empty() ? nullptr : sharding_of(parameters_.front().second);
  return {parameters_, sharding == nullptr ? nullptr : sharding->group};
}

void Optimizer::start_state(Slot& slot) const {
  slot.states.clear();
  for (const auto& kind : state_kinds(slot.group)) slot.states.push_back(new_state(slot, kind));
  if (traits_.has_steps) slot.step = new_number(slot, 0);
}

at::Tensor Optimizer::checked_gradient(size_t i) const {
  const auto& parameter = slots_[i].parameter;
  if (!slots_[i].states.empty()) {  // fused kernels read parameter and state in the same order
    const auto& state = slots_[i].states.front();
    if (state.scalar_type() != parameter.scalar_type() || state.device() != parameter.device() ||
        (slots_[i].is_fused && state.strides() != parameter.strides())) {
      throw Error(ErrorCode::kInvalidArgument,
                  "{}: parameter '{}' is {} with strides [{}] on {}, its state {} with strides [{}] on {}: a model is "
                  "moved, converted and laid out before its optimizer is made",
                  traits_.name, parameters_[i].first, describe(parameter), fmt::join(parameter.strides(), ", "),
                  parameter.device().str(), describe(state), fmt::join(state.strides(), ", "), state.device().str());
    }
  }
  const auto& gradient = gradient_of(parameter);
  if (gradient.scalar_type() != parameter.scalar_type() || gradient.device() != parameter.device() ||
      gradient.sizes() != parameter.sizes()) {
    throw Error(ErrorCode::kInvalidArgument, "{}: the gradient of '{}' is {} on {}, the parameter {} on {}",
                traits_.name, parameters_[i].first, describe(gradient), gradient.device().str(), describe(parameter),
                parameter.device().str());
  }
  if (slots_[i].gradient == GradientKind::kSparse) {
    if (const auto reason = why_not_sparse(slots_[i].group); !reason.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "{}: the gradient of '{}' is sparse; {}", traits_.name,
                  parameters_[i].first, reason);
    }
    return gradient;
  }
  if (!slots_[i].is_fused || gradient.strides() == parameter.strides()) return gradient;
  return at::empty_like(parameter).copy_(gradient);
}

/// Counts the step.
void Optimizer::begin_batch(Batch& batch) {
  batch.lr = lrs_[batch.group];
  const bool is_on_cpu = !batch.steps.empty() && batch.steps.front().is_cpu();
  if (is_on_cpu) {
    for (const auto& step : batch.steps) *step.mutable_data_ptr<float>() += 1;
  } else if (!batch.steps.empty()) {
    at::_foreach_add_(batch.steps, 1);
  }
}

void Optimizer::run(Batch& batch, const GradScale& scale) {
  begin_batch(batch);
  const auto device = batch.parameters.front().device();
  const KernelScale here{on_device(scale.scale, device), on_device(scale.found_inf, device)};
  if (batch.is_fused) {
    update_fused(batch, here);
    if (here.found_inf && !batch.steps.empty()) {
      at::_foreach_sub_(batch.steps, std::vector<at::Tensor>(batch.steps.size(), *here.found_inf));
    }
  } else {
    if (here.scale) {
      for (auto& gradient : batch.gradients) gradient = gradient.div(*here.scale);
    }
    if (batch.is_sparse) {
      update_sparse(batch);
    } else {
      update_foreach(batch);
    }
  }

  end_batch(batch);
}

void Optimizer::end_batch(Batch& batch) {
  for (const auto& parameter : batch.parameters) parameter.unsafeGetTensorImpl()->bump_version();
  for (auto& gradient : batch.gradients) gradient.reset();  // otherwise zero_grad would not free their memory
  detail::report_step(batch.parameters);
  if (!batch.is_first_step) return;
  for (const size_t i : batch.slots) slots_[i].has_state = true;
  is_planned_ = false;
}

TensorMap Optimizer::state_dict() const {
  TensorMap state;
  std::vector<StateKind> kinds;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (i == 0 || slots_[i].group != slots_[i - 1].group) kinds = state_kinds(slots_[i].group);
    if (!slots_[i].has_state) continue;
    for (size_t kind = 0; kind < slots_[i].states.size(); ++kind) {
      state.emplace(kinds[kind].name + "." + parameters_[i].first, slots_[i].states[kind]);
    }
    if (traits_.has_steps) state.emplace("step." + parameters_[i].first, slots_[i].step);
  }
  state.emplace(kLr, at::tensor(lrs_, at::kDouble));
  if (!traits_.scheduled.empty()) {
    std::vector<double> values;
    for (size_t group = 0; group < num_groups(); ++group) {
      values.push_back(std::get<double>(options_of(group).at(traits_.scheduled)));
    }
    state.emplace(traits_.scheduled, at::tensor(values, at::kDouble));
  }
  return state;
}

/// Loads the numbers of each group that a state has. On an error nothing changes.
void Optimizer::load_options(const TensorMap& state) {
  std::vector<std::string> kept;
  const auto numbers_of = [&](const std::string& name) -> std::optional<std::vector<double>> {
    const auto found = state.find(name);
    if (found == state.end()) return std::nullopt;
    const auto& tensor = found->second;
    if (!tensor.defined() || tensor.dim() != 1 || tensor.scalar_type() != at::kDouble) {
      throw Error(ErrorCode::kInvalidArgument, "{}: state '{}' is {}, not one double for each group", traits_.name,
                  name, describe(tensor));
    }
    const auto values = tensor.cpu().contiguous();
    std::vector<double> numbers(values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel());
    if (numbers.size() == num_groups()) return numbers;
    // The groups have changed. One value of all groups is that of the new groups too.
    if (!numbers.empty() && std::ranges::count(numbers, numbers.front()) == values.numel()) {
      return std::vector(num_groups(), numbers.front());
    }
    kept.push_back(
        fmt::format("{}: '{}' in the state differs between its {} groups of parameters, and this optimizer has {}: "
                    "each group keeps the '{}' that it has here",
                    traits_.name, name, numbers.size(), num_groups(), name));
    return std::nullopt;
  };
  const auto lrs = numbers_of(kLr);
  if (lrs) {
    for (const double lr : *lrs) check_lr(traits_.name, lr);
  }
  if (const auto values = traits_.scheduled.empty() ? std::nullopt : numbers_of(traits_.scheduled)) {
    std::vector<OptionMap> before;
    for (size_t group = 0; group < num_groups(); ++group) before.push_back(options_of(group));
    try {
      for (size_t group = 0; group < num_groups(); ++group) {
        // A state of a training without momentum leaves that of Nesterov, which cannot be 0.
        const auto nesterov = before[group].find("nesterov");
        const bool needs_one = nesterov != before[group].end() && std::get<bool>(nesterov->second);
        if ((*values)[group] != 0 || !needs_one) set_options(group, {{traits_.scheduled, (*values)[group]}});
      }
    } catch (...) {
      for (size_t group = 0; group < num_groups(); ++group) set_options(group, before[group]);
      throw;
    }
  }
  if (lrs) lrs_ = *lrs;
  for (const auto& message : kept) warn_on_stderr(message);
}

void Optimizer::load_state_dict(const TensorMap& state) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::set<std::string_view> taken{kLr};
  if (!traits_.scheduled.empty()) taken.insert(traits_.scheduled);
  auto loaded = slots_;
  for (size_t i = 0; i < loaded.size(); ++i) {
    auto& slot = loaded[i];
    const auto& name = parameters_[i].first;
    const auto kinds = state_kinds(slot.group);
    slot.states.clear();
    slot.step.reset();
    slot.has_state = false;
    std::string missing;
    const auto take = [&](const std::string& full_name) -> const at::Tensor* {
      const auto found = state.find(full_name);
      if (found == state.end()) {
        missing = full_name;
        return nullptr;
      }
      taken.insert(found->first);
      slot.has_state = true;
      return &found->second;
    };
    const auto take_number = [&](const std::string& kind) {
      const auto* tensor = take(kind + "." + name);
      if (tensor == nullptr) return at::Tensor();
      if (!tensor->defined() || tensor->numel() != 1) {
        throw Error(ErrorCode::kInvalidArgument, "{}: state '{}.{}' is {}, not one number", traits_.name, kind, name,
                    describe(*tensor));
      }
      return new_number(slot, 0).copy_(tensor->reshape({}));
    };
    for (const auto& kind : kinds) {
      if (kind.is_number) {
        slot.states.push_back(take_number(kind.name));
        continue;
      }
      const auto* tensor = take(kind.name + "." + name);
      if (tensor == nullptr) continue;
      if (!tensor->defined() || tensor->sizes() != slot.parameter.sizes() ||
          tensor->scalar_type() != slot.parameter.scalar_type()) {
        throw Error(ErrorCode::kInvalidArgument, "{}: state '{}.{}' is {}, the parameter {}", traits_.name, kind.name,
                    name, describe(*tensor), describe(slot.parameter));
      }
      slot.states.push_back(new_state(slot, kind).copy_(*tensor));
    }
    if (traits_.has_steps) slot.step = take_number("step");
    if (slot.has_state && !missing.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "{}: the state of parameter '{}' lacks '{}'", traits_.name, name,
                  missing);
    }
  }
  for (const auto& [name, tensor] : state) {
    if (taken.contains(name)) continue;
    throw Error(ErrorCode::kInvalidArgument, "{}: state '{}' belongs to no parameter here, or to none with its options",
                traits_.name, name);
  }
  load_options(state);
  slots_ = std::move(loaded);
  batches_.clear();
  is_planned_ = false;
}

}  // namespace yoke::train
