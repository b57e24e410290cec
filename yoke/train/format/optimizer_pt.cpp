#include "yoke/train/format/optimizer_pt.h"

#include <ATen/ops/full.h>

#include <optional>
#include <string>

#include "yoke/base/error.h"
#include "yoke/train/optim/optimizer.h"
#include "yoke/train/optim/python_state.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "this is not a state_dict of a Python optimizer: {}", why);
}

/// `place` says in messages where the value is in the file.
template <typename T>
const T& expect(const PtValue* value, const std::string& place) {
  if (value == nullptr) refuse("there is no " + place);
  if (const auto* found = value->get_if<T>()) return *found;
  refuse(fmt::format("{} is a {}", place, value->type_name()));
}

std::optional<double> number(const PtValue& value) {
  if (const auto* integer = value.get_if<int64_t>()) return static_cast<double>(*integer);
  if (const auto* real = value.get_if<double>()) return *real;
  const auto* tensor = value.get_if<at::Tensor>();
  if (tensor != nullptr && tensor->numel() == 1 && !tensor->is_complex()) {
    return tensor->item<double>();  // if CUDA graphs may change the learning rate, Python stores a tensor
  }
  return std::nullopt;
}

PtValue to_value(const PythonOption& option) {
  if (const auto* numbers = std::get_if<std::vector<double>>(&option)) {
    PtTuple tuple;
    for (const double one : *numbers) tuple.values.emplace_back(one);
    return tuple;
  }
  if (const auto* flag = std::get_if<bool>(&option)) return *flag;
  if (const auto* integer = std::get_if<int64_t>(&option)) return *integer;
  if (const auto* real = std::get_if<double>(&option)) return *real;
  if (const auto* text = std::get_if<std::string>(&option)) return *text;
  return {};
}

/// Returns nullopt if no option of yoke's optimizers can have this value.
std::optional<PythonOption> to_option(const PtValue& value) {
  if (value.get_if<std::monostate>() != nullptr) return std::monostate();
  if (const auto* flag = value.get_if<bool>()) return *flag;
  if (const auto* integer = value.get_if<int64_t>()) return *integer;
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (const auto one = number(value)) return *one;
  const auto* tuple = value.get_if<PtTuple>();
  const auto* list = value.get_if<PtList>();
  if (tuple == nullptr && list == nullptr) return std::nullopt;
  std::vector<double> numbers;
  for (const auto& item : tuple != nullptr ? tuple->values : list->values) {
    const auto one = number(item);
    if (!one) return std::nullopt;
    numbers.push_back(*one);
  }
  return numbers;
}

PythonParamGroup to_group(const PtValue& value) {
  PythonParamGroup group;
  for (const auto& item : expect<PtDict>(&value, "a group's dictionary").items) {
    const auto& name = expect<std::string>(&item.key, "the name of an option");
    if (name == "params") {
      for (const auto& index : expect<PtList>(&item.value, "'params'").values) {
        group.params.push_back(expect<int64_t>(&index, "a parameter's number"));
      }
    } else if (name == "param_names") {
      for (const auto& one : expect<PtList>(&item.value, "'param_names'").values) {
        group.param_names.push_back(expect<std::string>(&one, "a parameter's name"));
      }
    } else if (const auto option = to_option(item.value)) {
      group.options[name] = *option;
    }
  }
  return group;
}

}  // namespace

PtDict to_pt(const Optimizer& optimizer) {
  const auto python = to_python(optimizer);
  PtDict state;
  for (const auto& [index, tensors] : python.state) {
    PtDict of_parameter;
    for (const auto& [name, tensor] : tensors) {
      require_whole("to_pt", name, tensor);
      of_parameter.items.push_back({name, tensor.defined() ? PtValue(tensor) : PtValue()});
    }
    state.items.push_back({index, std::move(of_parameter)});
  }
  PtList groups;
  for (const auto& group : python.param_groups) {
    PtDict dict;
    for (const auto& [name, option] : group.options) dict.items.push_back({name, to_value(option)});
    PtList params, names;
    for (const auto index : group.params) params.values.emplace_back(index);
    for (const auto& name : group.param_names) names.values.emplace_back(name);
    dict.items.push_back({std::string("params"), std::move(params)});
    if (!names.values.empty()) dict.items.push_back({std::string("param_names"), std::move(names)});
    groups.values.emplace_back(std::move(dict));
  }
  PtDict result;
  result.items.push_back({std::string("state"), std::move(state)});
  result.items.push_back({std::string("param_groups"), std::move(groups)});
  return result;
}

void load_pt(Optimizer& optimizer, const PtValue& state_dict) {
  const auto& dict = expect<PtDict>(&state_dict, "it");
  PythonOptimizerState python;
  for (const auto& item : expect<PtDict>(dict.find("state"), "'state'").items) {
    auto& tensors = python.state[expect<int64_t>(&item.key, "a parameter's number")];
    for (const auto& part : expect<PtDict>(&item.value, "a parameter's state").items) {
      const auto& name = expect<std::string>(&part.key, "the name of a part of a parameter's state");
      if (part.value.get_if<std::monostate>() != nullptr) continue;
      const auto* tensor = part.value.get_if<at::Tensor>();
      const auto one = tensor == nullptr ? number(part.value) : std::nullopt;  // before torch 1.12, "step" was a number
      if (tensor == nullptr && !one) refuse(fmt::format("'{}' of a parameter is a {}", name, part.value.type_name()));
      tensors[name] = tensor != nullptr ? *tensor : at::full({}, *one, at::kFloat);
    }
  }
  for (const auto& group : expect<PtList>(dict.find("param_groups"), "'param_groups'").values) {
    python.param_groups.push_back(to_group(group));
  }
  load_python(optimizer, python);
}

}  // namespace yoke::train
