// yoke/train/checkpoint/train_state.h -- collects a training's parts into a CheckpointState, and puts them back.
//
//     CheckpointState state;
//     add_module(state, "model", *model);
//     add_tensors(state, "optimizer", optimizer.state_dict());
//     add_generators(state, world);                    // on all ranks
//     add_num_threads(state, world);                   // on all ranks
//     state.metadata["epoch"] = std::to_string(epoch);
//     if (world.rank() == 0) folder.save(step, state);
//
// Each part stands alone: use those that you need, in any order.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/train/checkpoint/checkpoint.h"

namespace torch::nn {
class Module;
}

namespace yoke::train {

/// Puts tensors under "group/name". They are referred to, not copied: save before they change.
/// Errors  kInvalidArgument when a name is taken.
void add_tensors(CheckpointState& state, const std::string& group, const TensorMap& tensors);

/// Those of a group, without "group/"; none when there is no such group.
TensorMap tensors_in(const CheckpointState& state, const std::string& group);

/// A module's parameters and buffers by their dotted names, as Python's state_dict has them; undefined ones are left
/// out.
TensorMap named_tensors(const torch::nn::Module& module);
void add_module(CheckpointState& state, const std::string& group, const torch::nn::Module& module);

/// Copies a group into tensors that exist already, keeping their devices and strides. All or nothing.
/// Errors  kInvalidArgument naming the first tensor of each kind that the checkpoint lacks, that the receiver lacks,
///         or that differs in shape or dtype.
void load_tensors(const CheckpointState& state, const std::string& group, const TensorMap& into);
void load_module(const CheckpointState& state, const std::string& group, torch::nn::Module& module);

/// The same for a model of which a part is new, a head say: what both have is copied, the rest is left as it is.
/// Returns what did not match, for the caller to look at.
/// Errors  kInvalidArgument naming a tensor that differs in shape or dtype; nothing was copied then.
struct Unmatched {
  std::vector<std::string> missing;     ///< Of the module, and not in the group.
  std::vector<std::string> unexpected;  ///< In the group, and not of the module.
};
Unmatched load_matching(const CheckpointState& state, const std::string& group, torch::nn::Module& module);

/// An integer of the metadata. Errors: kDataLoss naming it when it is not there or is something else.
int64_t metadata_int(const CheckpointState& state, const std::string& name);

/// Collective. One generator of each rank, as "generator/NAME", uint8 [ranks, bytes]; on all ranks, since whoever saves
/// needs it.
void add_generator(CheckpointState& state, dist::World& world, const std::string& name, at::Generator generator);

/// Collective. The default generators: "cpu", and "cuda" when the world's device is a GPU (then that GPU's).
void add_generators(CheckpointState& state, dist::World& world);

/// This rank's own state, if the checkpoint has one: it may come from another number of ranks, or lack this generator,
/// which `warn` is told on rank 0. Not collective.
/// Errors  kDataLoss when the bytes are no state of such a generator.
void restore_generator(const CheckpointState& state, const dist::World& world, const std::string& name,
                       at::Generator generator, const Warn& warn);
void restore_generators(const CheckpointState& state, const dist::World& world, const Warn& warn);

/// Collective. libtorch's threads in each rank, as "num_threads", int64 [ranks]: on a CPU the bits of sums depend on
/// them.
void add_num_threads(CheckpointState& state, dist::World& world);

/// Whether a resumed run takes the checkpoint's number of threads, or keeps its own and says that bits may differ.
enum class ThreadRule { kAdopt, kWarn };

/// Not collective; warns on rank 0 only, but adopts on every rank. On the thread that trains, before its first parallel
/// operation: the count belongs to a thread, and libtorch's pools start then.
void restore_num_threads(const CheckpointState& state, const dist::World& world, ThreadRule rule, const Warn& warn);

}  // namespace yoke::train
