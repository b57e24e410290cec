// yoke/train/checkpoint/train_state.h -- gives names to everything that a resumed run needs.
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
namespace torch::optim {
class Optimizer;
}

namespace yoke::train {

class Meter;
namespace detail {
struct Replica;
}

/// A class whose state is tensors by name: optimizers, averages, GradScaler, ReduceOnPlateau, and classes of your own.
template <class Part>
concept HasStateDict = requires(Part& part, const TensorMap& state) {
  { part.state_dict() } -> std::convertible_to<TensorMap>;
  part.load_state_dict(state);
};

/// A loader. Its position in an epoch is the same on all ranks.
template <class Part>
concept HasPosition = requires(Part& part) {
  part.resume(part.position());
};

/// Whether a resumed run takes the number of threads from the checkpoint, or keeps its own and warns of different bits.
enum class ThreadRule { kAdopt, kWarn };

/// The parts of a training under names. A TrainState refers to the parts, which must outlive it. A part may be a
/// module, its holder or its wrapper; an optimizer or an object with a state_dict; meters; a loader; a generator;
/// tensors; a number, a flag or a text. Some parts are divided between ranks (a FullyShardedDataParallel's model, a
/// ShardedOptimizer). The same calls save and load such parts, even if the number of ranks changes. Generators, meters
/// and thread counts differ between ranks. If the number of ranks has changed, each rank that has a row in the
/// checkpoint loads its generators and thread count, with a warning, and rank 0 loads the sums of the meters.
/// Ranks     all ranks add the same parts. Parts that are equal on all ranks (an optimizer's state, a number) are saved
///           from rank 0.
class TrainState {
 public:
  explicit TrainState(dist::Group& group);
  ~TrainState();
  TrainState(TrainState&&) noexcept;

  /// Errors  kInvalidArgument: the name is taken, empty, or begins with "yoke.".
  template <class Part>
  TrainState& add(const std::string& name, Part& part) {
    if constexpr (requires { part.model(); }) {
      return add(name, part.model());  // only the tensors of the wrapped model are marked as sharded
    } else if constexpr (std::is_base_of_v<torch::nn::Module, Part>) {
      return add_module(name, part);
    } else if constexpr (requires { static_cast<const torch::nn::Module&>(*part); }) {
      return add_module(name, *part);
    } else if constexpr (HasStateDict<Part>) {
      StateDict access{.save = [&part] { return TensorMap(part.state_dict()); },
                       .load = [&part](const TensorMap& state) { part.load_state_dict(state); }};
      if constexpr (requires(const TensorMap& own) { part.load_own_state_dict(own); }) {
        access.save_own = [&part] { return TensorMap(part.own_state_dict()); };
        access.load_own = [&part](const TensorMap& state) { part.load_own_state_dict(state); };
      }
      if constexpr (requires { part.state_layout(); }) access.layout = [&part] { return part.state_layout(); };
      access.is_optimizer = requires { part.set_lr(0.0); };
      if constexpr (requires { NamedTensors(part.parameters()); })
        access.parameters = [&part] { return part.parameters(); };
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
    } else if constexpr (std::is_convertible_v<Part*, torch::optim::Optimizer*>) {
      static_assert(!std::is_convertible_v<Part*, torch::optim::Optimizer*>,
                    "a TrainState does not save the optimizers of torch::optim: use yoke's optimizers "
                    "(yoke::train::AdamW, yoke::train::Sgd)");
      return *this;
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

  /// Adds the default generators: "cpu", and if the group's device is a GPU, "cuda" for that GPU.
  TrainState& add_generators();

  /// Adds each rank's number of libtorch threads. The bits of sums on a CPU depend on this number. The number is a
  /// setting of one thread, and libtorch's thread pools start with the first parallel operation. So load on the
  /// training thread, before that operation.
  TrainState& add_num_threads(ThreadRule rule = ThreadRule::kWarn);

  dist::Group& group() const;

  /// The current state of all parts: this rank's whole tensors, its slices of divided tensors, and the values that are
  /// stored as text. Tensors of modules and optimizers are not copied.
  struct Snapshot {
    TensorSlices slices;  ///< Under "PART/NAME".
    StringMap values;     ///< Under "PART".
  };
  Snapshot snapshot() const;  ///< Collective.

  /// The parameters of the optimizers of yoke::train among the parts.
  std::vector<at::Tensor> optimized() const;

  /// What this rank must hold as other ranks do, for a ReplicaCheck (yoke/train/run). Not collective.
  std::vector<detail::Replica> replicas() const;
  /// What this rank has, with nothing of others: what all ranks have alike, its slices of what is divided between them,
  /// and rows, which differ between ranks.
  struct OwnState : Snapshot {
    NamedTensors rows;
  };
  OwnState own_state() const;  ///< Not collective.
  /// Not collective. Loads what own_state() of this program gave at the same rank and number of ranks; gradients of
  /// modules become undefined. Errors  kInvalidArgument: it is of another state; parts before may be loaded already.
  void load_own(const OwnState& own);

  /// Collective. Loads every part from the checkpoint.
  /// Errors  on all ranks (the failing rank throws its own error, the others its rank and message): kInvalidArgument:
  ///         the checkpoint lacks a part, or the part belongs to a different model (names the first difference). Then
  ///         nothing has changed. If a load_state_dict() or resume() throws, the parts before it are already loaded.
  void load(const StoredCheckpoint& checkpoint, const Warn& warn = warn_on_stderr);

 private:
  struct StateDict {
    std::function<TensorMap()> save;
    std::function<void(const TensorMap&)> load;
    /// Returns the tensors to which the states named "KIND.NAME" belong. A state with the shape of NAME is divided
    /// between ranks like NAME. Null if no state is divided.
    std::function<NamedTensors()> layout;
    bool is_optimizer = false;
    std::function<NamedTensors()> parameters;  ///< Of an optimizer of yoke::train; null otherwise.
    /// Null unless save() is collective: what this rank alone has.
    std::function<TensorMap()> save_own;
    std::function<void(const TensorMap&)> load_own;
  };
  struct Value {
    std::function<std::string()> save;
    /// Parses the text. The returned function stores the value.
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
