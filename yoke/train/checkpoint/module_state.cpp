#include "yoke/train/checkpoint/module_state.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "yoke/train/checkpoint/tensor_slice.h"

namespace yoke::train {
namespace {

void append_tensors(const torch::nn::Module& module, const std::string& prefix, NamedTensors& result) {
  for (const auto& list : {module.named_parameters(/*recurse=*/false), module.named_buffers(/*recurse=*/false)}) {
    for (const auto& item : list) {
      if (item.value().defined()) result.emplace_back(prefix + item.key(), item.value());
    }
  }
  for (const auto& child : module.named_children()) {
    if (child.value()) append_tensors(*child.value(), prefix + child.key() + ".", result);
  }
}

}  // namespace

NamedTensors named_tensors(const torch::nn::Module& module) {
  NamedTensors result;
  append_tensors(module, "", result);
  return result;
}

void load_module(const TensorSource& source, torch::nn::Module& module) {
  prepare_to_load(source, slices_of(named_tensors(module)))();
}

void load_module(TensorMap from, torch::nn::Module& module) { load_module(source_of(std::move(from)), module); }

Unmatched load_matching(const TensorSource& source, torch::nn::Module& module) {
  auto both = source;
  auto slices = slices_of(named_tensors(module));
  Unmatched unmatched;
  for (const auto& slice : slices) {
    if (!source.tensors.contains(slice.name)) unmatched.missing.push_back(slice.name);
  }
  for (const auto& entry : source.tensors) {
    if (std::ranges::find(slices, entry.first, &TensorSlice::name) == slices.end()) {
      unmatched.unexpected.push_back(entry.first);
    }
  }
  std::erase_if(both.tensors, [&](const auto& entry) {
    return std::ranges::find(slices, entry.first, &TensorSlice::name) == slices.end();
  });
  const bool have_nothing_in_common = both.tensors.empty() && !source.tensors.empty();
  if (have_nothing_in_common) prepare_to_load(source, slices);  // throws
  std::erase_if(slices, [&](const auto& slice) { return !source.tensors.contains(slice.name); });
  prepare_to_load(both, slices)();
  return unmatched;
}

Unmatched load_matching(TensorMap from, torch::nn::Module& module) {
  return load_matching(source_of(std::move(from)), module);
}

}  // namespace yoke::train
