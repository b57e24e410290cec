// yoke/train/checkpoint/train_state.h -- everything that a resumed run needs, named once.
//
//     train::TrainState state(group);
//     state.add("model", net).add("optimizer", optimizer).add("loader", loader).add("loss", loss_mean);
//     state.add("epoch", epoch).add_generators();
//     train::CheckpointFolder folder("out", {.keep = 2});
//     if (const auto resumed = folder.load_latest(state)) step = resumed->step;
//     folder.save(step, state);
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "yoke/train/checkpoint/stored_checkpoint.h"
#include "yoke/train/checkpoint/tensor_slice.h"
#include "yoke/train/checkpoint/text_value.h"
#include "yoke/train/named_tensors.h"
#include "yoke/train/warn.h"

namespace torch::nn {
class Module;
}
namespace yoke::dist {
class Group;
}

namespace yoke::train {

class Meter;

/// What has a state of tensors by name: optimizers, averages, GradScaler, ReduceOnPlateau, and classes of one's own.
template <class Part>
concept HasStateDict = requires(Part& part, const TensorMap& state) {
  { part.state_dict() } -> std::convertible_to<TensorMap>;
  part.load_state_dict(state);
};

/// A loader: where it is in which epoch, the same on all ranks.
template <class Part>
concept HasPosition = requires(Part& part) {
  part.resume(part.position());
};

/// Whether a resumed run takes the checkpoint's number of threads, or keeps its own and says that bits may differ.
enum class ThreadRule { kAdopt, kWarn };

/// A training's parts under names. They are referred to, and outlive it.
///
/// Parts     a module, its holder or its wrapper; an optimizer and whatever else has a state_dict; meters; loaders; a
///           generator of one's own; tensors; numbers, flags and texts.
/// Sharded   what is divided between ranks (a FullyShardedDataParallel's model, a ShardedOptimizer) is saved and loaded
///           by the same calls as what every rank has whole, and from one number of ranks to another.
/// By rank   generators, meters and thread counts are each rank's own. On another number of ranks those that the
///           checkpoint knows take up theirs, with a warning, and rank 0 takes the sums of all meters.
/// Ranks     the same parts on all ranks. What is the same on all (an optimizer's state, a number) is rank 0's when
///           saved.
class TrainState {
 public:
  explicit TrainState(dist::Group& group);
  ~TrainState();
  TrainState(TrainState&&) noexcept;

  /// Errors  kInvalidArgument: the name is taken, empty, or begins with "yoke.".
  template <class Part>
  TrainState& add(const std::string& name, Part& part) {
    if constexpr (requires { part.model(); }) {
      return add(name, part.model());  // a wrapper's model is marked as sharded where it is
    } else if constexpr (std::is_base_of_v<torch::nn::Module, Part>) {
      return add_module(name, part);
    } else if constexpr (requires { static_cast<const torch::nn::Module&>(*part); }) {
      return add_module(name, *part);
    } else if constexpr (HasStateDict<Part>) {
      StateDict access{.save = [&part] { return TensorMap(part.state_dict()); },
                       .load = [&part](const TensorMap& state) { part.load_state_dict(state); }};
      if constexpr (requires { part.state_layout(); }) access.layout = [&part] { return part.state_layout(); };
      return add_state_dict(name, std::move(access));
    } else if constexpr (std::is_base_of_v<Meter, Part>) {
      return add_meter(name, part);
    } else if constexpr (HasPosition<Part>) {
      return add_text(name, {.save = [&part] { return text_of(part.position()); },
                             .prepare =
                                 [&part, name](const std::string& text) {
                                   auto position = part.position();
                                   read_text(name, text, position);
                                   return [&part, position] { part.resume(position); };
                                 }});
    } else if constexpr (std::is_same_v<Part, at::Generator>) {
      return add_generator(name, part);
    } else if constexpr (std::is_same_v<Part, at::Tensor>) {
      return add_tensor(name, part);
    } else {
      static_assert(
          requires { text_of(part); },
          "a part of a TrainState is a module, its holder or its wrapper; what has state_dict() and "
          "load_state_dict(), or position() and resume(); a meter, a generator, a tensor, a number or a text");
      return add_text(name, {.save = [&part] { return text_of(part); },
                             .prepare =
                                 [&part, name](const std::string& text) {
                                   Part value{};
                                   read_text(name, text, value);
                                   return [&part, value] { part = value; };
                                 }});
    }
  }

  /// The default generators: "cpu", and "cuda" when the group's device is a GPU (then that GPU's).
  TrainState& add_generators();

  /// libtorch's threads in each rank: on a CPU the bits of sums depend on them. Load on the thread that trains, before
  /// its first parallel operation: the count belongs to a thread, and libtorch's pools start then.
  TrainState& add_num_threads(ThreadRule rule = ThreadRule::kWarn);

  dist::Group& group() const;

  /// This rank's tensors and the texts, as they are now: not copies.
  struct Snapshot {
    TensorSlices slices;  ///< Under "PART/NAME".
    StringMap values;     ///< Under "PART".
  };
  Snapshot snapshot() const;  ///< Collective.

  /// Collective. Gives every part what the checkpoint has of it.
  /// Errors  on all ranks, its own error where it is, its rank and message elsewhere: kInvalidArgument for a part that
  ///         the checkpoint lacks or that is of another model, with the first difference. Everything is as it was then,
  ///         unless it is a load_state_dict() or resume() that refuses: what comes before it has been loaded.
  void load(const StoredCheckpoint& checkpoint, const Warn& warn = warn_on_stderr);

 private:
  struct StateDict {
    std::function<TensorMap()> save;
    std::function<void(const TensorMap&)> load;
    /// What states named "KIND.NAME" are of: a state with the shape of NAME is divided as that is.
    /// Null when no state is divided.
    std::function<NamedTensors()> layout;
  };
  struct Value {
    std::function<std::string()> save;
    /// Reads the text; what it returns takes the value over.
    std::function<std::function<void()>(const std::string&)> prepare;
  };
  struct Part;
  struct Impl;

  TrainState& add_part(const std::string& name, std::unique_ptr<Part> part);
  TrainState& add_module(const std::string& name, torch::nn::Module& module);
  TrainState& add_state_dict(const std::string& name, StateDict access);
  TrainState& add_meter(const std::string& name, Meter& meter);
  TrainState& add_generator(const std::string& name, at::Generator generator);
  TrainState& add_tensor(const std::string& name, at::Tensor& tensor);
  TrainState& add_text(const std::string& name, Value access);
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::train
