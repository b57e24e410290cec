#include "yoke/train/checkpoint/module_state.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
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

void load_module(const TensorSource& source, torch::nn::Module& module, const LoadOptions& options) {
  auto read = source;
  auto slices = slices_of(named_tensors(module));
  for (const auto& ignored : options.ignore) {
    const auto is_ignored = [&](const std::string& name) { return name == ignored || name.starts_with(ignored + "."); };
    const auto num_here = std::erase_if(slices, [&](const auto& slice) { return is_ignored(slice.name); });
    const auto num_there = std::erase_if(read.tensors, [&](const auto& entry) { return is_ignored(entry.first); });
    if (num_here + num_there > 0) continue;
    throw Error(ErrorCode::kInvalidArgument,
                "{}: '{}' is to be ignored, and neither it nor the module has a tensor of "
                "this name, or below it",
                source.what, ignored);
  }
  prepare_to_load(read, slices)();
}

void load_module(TensorMap from, torch::nn::Module& module, const LoadOptions& options) {
  load_module(source_of(std::move(from)), module, options);
}

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
