// yoke/train/checkpoint/module_state.h -- a module's tensors by name: to write them, and to take them from anywhere.
//
//     load_module(read_safetensors("weights.safetensors").tensors, *model);
//     load_module(StoredCheckpoint("out/checkpoint-000000001170").source("model"), *model);
//     write_pt("ours.pt", to_pt(gather_tensors(group, named_tensors(*model))));
#pragma once

#include <concepts>
#include <string>
#include <vector>

#include "yoke/train/checkpoint/tensor_source.h"
#include "yoke/train/format/safetensors.h"
#include "yoke/train/named_tensors.h"

namespace torch::nn {
class Module;
}

namespace yoke::train {

/// A module's parameters and buffers by their dotted names, in the order of Python's state_dict: of each module its
/// parameters, its buffers, then its children. Undefined ones are left out, a tied one has all its names.
NamedTensors named_tensors(const torch::nn::Module& module);

/// Copies into the module's tensors, which keep their devices and strides; a sharded model takes its parts. All or
/// nothing on this rank. Not collective, but all ranks load the same.
/// Errors  kInvalidArgument naming the first tensor that one side lacks or that differs in shape or dtype.
void load_module(const TensorSource& source, torch::nn::Module& module);
void load_module(TensorMap from, torch::nn::Module& module);
template <std::same_as<NamedTensors> Tensors>
void load_module(const Tensors& from, torch::nn::Module& module) {
  load_module(by_name(from), module);
}

/// What one side has and the other lacks.
struct Unmatched {
  std::vector<std::string> missing;     ///< Of the module, and not in the source.
  std::vector<std::string> unexpected;  ///< In the source, and not of the module.
};

/// The same for a model of which a part is new, a head say: what both have is copied, the rest is left as it is.
/// Returns what did not match, for the caller to look at.
/// Errors  kInvalidArgument naming a tensor that differs in shape or dtype; nothing was copied then.
Unmatched load_matching(const TensorSource& source, torch::nn::Module& module);
Unmatched load_matching(TensorMap from, torch::nn::Module& module);

}  // namespace yoke::train
