// yoke/train/parallel/parallel_module.h -- a network that all ranks train together, replicated or sharded.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <tuple>
#include <type_traits>

#include "yoke/train/named_tensors.h"

namespace torch::nn {
class Module;
}
namespace yoke::dist {
class Group;
}

namespace yoke::train {

/// The common interface of DistributedDataParallel and FullyShardedDataParallel, so that changing from one to the other
/// changes one line of a training: `AdamW optimizer(net)`, `net(x)`, `net.clip_grad_norm(1.0)`.
class ParallelModule {
 public:
  virtual ~ParallelModule() = default;
  ParallelModule(const ParallelModule&) = delete;
  ParallelModule& operator=(const ParallelModule&) = delete;

  /// The tensors for this rank's optimizer: the parameters, or this rank's part of each. Frozen ones are among them, as
  /// in PyTorch's `parameters()`, so that an optimizer trains those that are unfrozen later.
  virtual NamedTensors parameters() const = 0;
  virtual NamedTensors buffers() const = 0;

  /// Scales gradients so that their total norm over all ranks is at most `max_norm`. Returns the norm before scaling,
  /// as a float scalar on the device, without waiting for it. Collective if the network is sharded.
  virtual at::Tensor clip_grad_norm(double max_norm) = 0;

  /// Collective. Copies rank 0's buffers (batch norm's running statistics) to all ranks.
  virtual void sync_buffers() = 0;
  virtual dist::Group& group() const = 0;  ///< The ranks over which the network is replicated or sharded.

 protected:
  ParallelModule() = default;

  /// Runs a forward. If it throws, reports the exception to the other ranks, which would otherwise only see that this
  /// rank is absent.
  template <class Forward>
  auto told_to_all(Forward&& forward) -> decltype(forward()) {
    try {
      return forward();
    } catch (...) {
      explain(std::current_exception());
    }
  }

 private:
  [[noreturn]] void explain(std::exception_ptr error) const;
};

/// Returns the module, given a module or a holder such as torch::nn::Linear.
template <class M>
auto& implementation_of(M& model) {
  if constexpr (std::is_base_of_v<torch::nn::Module, M>) {
    return model;
  } else {
    return *model;
  }
}

template <class M>
torch::nn::Module& module_of(M& model) {
  return implementation_of(model);
}

/// Calls `take` with every tensor in the result of a forward: a tensor; an optional, vector, map, pair or tuple of
/// supported types; or a struct with a member template `each_tensor(take) const`.
template <class Output, class Take>
void each_tensor(const Output& output, const Take& take) {
  if constexpr (std::is_convertible_v<const Output&, const at::Tensor&>) {
    take(output);
  } else if constexpr (requires { output.has_value(); }) {
    if (output.has_value()) each_tensor(*output, take);
  } else if constexpr (requires { output.each_tensor(take); }) {
    output.each_tensor(take);
  } else if constexpr (requires { output.begin(); }) {
    for (const auto& item : output) each_tensor(item, take);
  } else if constexpr (requires { std::tuple_size<Output>::value; }) {
    std::apply([&](const auto&... item) { (each_tensor(item, take), ...); }, output);
  } else {
    static_assert(std::is_arithmetic_v<Output> || std::is_enum_v<Output>,
                  "forward returns a type whose tensors are not known: give it a member "
                  "`template <class Take> void each_tensor(const Take& take) const` that calls take(tensor) for each");
  }
}

}  // namespace yoke::train
