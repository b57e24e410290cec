// yoke/train/checkpoint/module_state.h -- a module's tensors by name, to save them and to load them from any source.
//
//     load_module(read_safetensors("weights.safetensors").tensors, *model);
//     load_module(read_checkpoint("out/checkpoint-000000001170").part("model"), *model);
//     load_module(read_pt("resnet50.pt").tensors, *model, {.ignore = {"fc"}});   // for another number of classes
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

/// A module's parameters and buffers by their dotted names, in the order of Python's state_dict: for each module its
/// parameters, its buffers, then its children. Undefined tensors are left out; a tied tensor appears under all its
/// names.
NamedTensors named_tensors(const torch::nn::Module& module);

struct LoadOptions {
  /// Names of tensors, or of submodules with all that they contain ("fc"), that are left as they are in the module,
  /// whatever the source has under these names: a head of another shape, for example.
  std::vector<std::string> ignore = {};
};

/// Copies values into the module's tensors, which keep their devices and strides; in a sharded model, copies this
/// rank's parts. The source may have a tied tensor under one of its names only. On an error this rank changes nothing.
/// Not collective, but all ranks must load the same source.
/// Errors  kInvalidArgument naming the first tensor that one side lacks or that differs in shape or dtype, or a name to
///         ignore that neither side has.
void load_module(const TensorSource& source, torch::nn::Module& module, const LoadOptions& options = {});
void load_module(TensorMap from, torch::nn::Module& module, const LoadOptions& options = {});
template <std::same_as<NamedTensors> Tensors>
void load_module(const Tensors& from, torch::nn::Module& module, const LoadOptions& options = {}) {
  load_module(by_name(from), module, options);
}

/// The tensors that only one side has.
struct Unmatched {
  std::vector<std::string> missing;     ///< In the module, but not in the source.
  std::vector<std::string> unexpected;  ///< In the source, but not in the module.
};

/// Like load_module, for a model with a new part, such as a head: copies the tensors that both sides have and leaves
/// the rest unchanged. The caller should check the result, which lists the tensors that only one side has.
/// Errors  kInvalidArgument: no name is on both sides, as with a prefix; or a tensor differs in shape or dtype (names
///         it). Then nothing is copied.
Unmatched load_matching(const TensorSource& source, torch::nn::Module& module);
Unmatched load_matching(TensorMap from, torch::nn::Module& module);

}  // namespace yoke::train
