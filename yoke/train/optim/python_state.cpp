#include "yoke/train/optim/python_state.h"

#include <optional>
#include <set>

#include "yoke/base/error.h"

namespace yoke::train {

/// The part of Optimizer that only this file uses.
struct OptimizerOptions {
  static OptionMap get(const Optimizer& optimizer, size_t group) { return optimizer.options_of(group); }
  static void set(Optimizer& optimizer, size_t group, const OptionMap& options) {
    optimizer.set_options(group, options);
  }
  static const std::string& name(const Optimizer& optimizer) { return optimizer.traits_.name; }
  /// The initial state of a parameter that has had no gradient yet.
  static TensorMap first_state(const Optimizer& optimizer, size_t parameter) {
    auto slot = optimizer.slots_[parameter];
    optimizer.start_state(slot);
    TensorMap state = {{"step", slot.step}};
    const auto kinds = optimizer.state_kinds(slot.group);
    for (size_t i = 0; i < kinds.size(); ++i) state.emplace(kinds[i].name, slot.states[i]);
    return state;
  }
  static bool has_fused(const Optimizer& optimizer) { return optimizer.traits_.is_fused; }
  static bool is_fused(const Optimizer& optimizer, size_t parameter) { return optimizer.slots_[parameter].is_fused; }
  static size_t part_of(const Optimizer& optimizer, size_t parameter) { return optimizer.slots_[parameter].group; }
};

namespace {

// Groups the state by the position of its parameter: "exp_avg.NAME" becomes "exp_avg" in the map of parameter NAME.
std::map<int64_t, TensorMap> by_parameter(const Optimizer& optimizer) {
  std::map<std::string, int64_t> positions;
  for (const auto& [name, parameter] : optimizer.parameters()) {
    positions.emplace(name, static_cast<int64_t>(positions.size()));
  }
  std::map<int64_t, TensorMap> result;
  for (const auto& [full_name, tensor] : optimizer.state_dict()) {
    const auto dot = full_name.find('.');  // the text before it is the kind of state, such as "exp_avg"
    if (dot == full_name.npos) continue;   // a number of the groups, such as "lr"
    result[positions.at(full_name.substr(dot + 1))].emplace(full_name.substr(0, dot), tensor);
  }
  return result;
}

// Converts to a value of OptionMap; nullopt for None and texts, which no option here can have.
std::optional<OptionValue> option_of(const PythonOption& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* list = std::get_if<std::vector<double>>(&value)) return *list;
  return std::nullopt;
}

struct GroupOptions {
  double lr = 0;
  OptionMap options;
};

std::vector<GroupOptions> options_of(const Optimizer& optimizer) {
  std::vector<GroupOptions> result;
  for (size_t group = 0; group < optimizer.num_groups(); ++group) {
    result.push_back({optimizer.lr(group), OptimizerOptions::get(optimizer, group)});
  }
  return result;
}

void set_options(Optimizer& optimizer, const std::vector<GroupOptions>& groups) {
  for (size_t group = 0; group < groups.size(); ++group) {
    OptimizerOptions::set(optimizer, group, groups[group].options);
    optimizer.set_lr(group, groups[group].lr);
  }
}

// Converts the state to this optimizer's names. Throws if the groups differ.
TensorMap flatten(const Optimizer& optimizer, const PythonOptimizerState& python) {
  const auto& kind = OptimizerOptions::name(optimizer);
  if (python.param_groups.size() != optimizer.num_groups()) {
    throw Error(ErrorCode::kInvalidArgument, "{}: the state has {} parameter groups, this optimizer {}", kind,
                python.param_groups.size(), optimizer.num_groups());
  }
  const auto& parameters = optimizer.parameters();
  TensorMap flat;
  std::set<int64_t> taken;
  for (size_t group = 0; group < python.param_groups.size(); ++group) {
    const auto& theirs = python.param_groups[group];
    std::vector<size_t> ours;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (OptimizerOptions::part_of(optimizer, i) == group) ours.push_back(i);
    }
    auto trained = ours;
    std::erase_if(trained, [&](size_t i) { return !parameters[i].second.requires_grad(); });
    if (theirs.params.size() == trained.size()) ours = trained;  // of an optimizer of these alone
    const size_t num_parameters = ours.size();
    if (theirs.params.size() != num_parameters ||
        (!theirs.param_names.empty() && theirs.param_names.size() != num_parameters)) {
      throw Error(ErrorCode::kInvalidArgument, "{}: group {} of the state has {} parameters, this optimizer's {}", kind,
                  group, theirs.params.size(), num_parameters);
    }
    for (size_t i = 0; i < num_parameters; ++i) {
      const auto& name = parameters[ours[i]].first;
      if (!theirs.param_names.empty() && theirs.param_names[i] != name) {
        throw Error(ErrorCode::kInvalidArgument,
                    "{}: parameter {} of group {} is '{}' in the state and '{}' here; clear "
                    "param_names to go by position",
                    kind, i, group, theirs.param_names[i], name);
      }
      taken.insert(theirs.params[i]);
      const auto found = python.state.find(theirs.params[i]);
      if (found == python.state.end()) continue;
      for (const auto& [state_name, tensor] : found->second) {
        if (tensor.defined()) flat.emplace(state_name + "." + name, tensor);
      }
    }
  }
  for (const auto& [index, tensors] : python.state) {
    if (!taken.contains(index)) {
      throw Error(ErrorCode::kInvalidArgument, "{}: the state of parameter {} belongs to no group", kind, index);
    }
  }
  return flat;
}

}  // namespace

PythonOptimizerState to_python(const Optimizer& optimizer) {
  PythonOptimizerState result;
  result.state = by_parameter(optimizer);
  if (OptimizerOptions::name(optimizer) == "Adagrad") {  // Python's Adagrad has its state from the beginning
    for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      if (!result.state.contains(index)) result.state.emplace(index, OptimizerOptions::first_state(optimizer, i));
    }
  }
  for (size_t group = 0; group < optimizer.num_groups(); ++group) {
    auto& python = result.param_groups.emplace_back();
    for (const auto& [name, value] : OptimizerOptions::get(optimizer, group)) {
      std::visit([&, &key = name](const auto& given) { python.options.emplace(key, given); }, value);
    }
    python.options["lr"] = optimizer.lr(group);
    bool is_fused = true;
    for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
      if (OptimizerOptions::part_of(optimizer, i) != group) continue;
      python.params.push_back(static_cast<int64_t>(i));
      python.param_names.push_back(optimizer.parameters()[i].first);
      is_fused = is_fused && OptimizerOptions::is_fused(optimizer, i);
    }
    const bool has_fused = OptimizerOptions::has_fused(optimizer);
    if (has_fused) python.options["fused"] = is_fused ? PythonOption(true) : PythonOption();
    // Python's optimizers read these options without a default.
    python.options["foreach"] = has_fused ? PythonOption() : PythonOption(true);
    python.options["differentiable"] = false;
    if (!has_fused || python.options.contains("betas")) python.options["capturable"] = false;
  }
  return result;
}

void load_python(Optimizer& optimizer, const PythonOptimizerState& python) {
  const auto flat = flatten(optimizer, python);
  const auto before = options_of(optimizer);
  auto wanted = before;
  for (size_t group = 0; group < wanted.size(); ++group) {
    for (const auto& [name, value] : python.param_groups[group].options) {
      const auto option = option_of(value);
      if (!option) continue;
      if (name == "lr" && std::holds_alternative<double>(*option)) {
        wanted[group].lr = std::get<double>(*option);
      } else if (wanted[group].options.contains(name)) {
        wanted[group].options[name] = *option;
      }
    }
  }
  try {
    set_options(optimizer, wanted);  // first, because amsgrad and momentum decide which state exists
    optimizer.load_state_dict(flat);
  } catch (...) {
    set_options(optimizer, before);
    throw;
  }
}

}  // namespace yoke::train
