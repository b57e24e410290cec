// yoke/train/parallel/parallel_module.h -- a network that all ranks train together, replicated or sharded.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "yoke/train/named_tensors.h"

namespace torch::nn {
class Module;
}
namespace yoke::dist {
class Group;
}

namespace yoke::train {

/// What DistributedDataParallel and FullyShardedDataParallel have in common, so that a training changes one line to go
/// from one to the other: `AdamW optimizer(net)`, `net(x)`, `net.clip_grad_norm(1.0)`.
class ParallelModule {
 public:
  virtual ~ParallelModule() = default;
  ParallelModule(const ParallelModule&) = delete;
  ParallelModule& operator=(const ParallelModule&) = delete;

  /// What this rank's optimizer steps: trained parameters, or its part of each.
  virtual NamedTensors parameters() const = 0;
  virtual NamedTensors buffers() const = 0;

  /// Scales gradients so that the norm of all, over all ranks, is at most `max_norm`. Returns what it was: a float
  /// scalar on the device, without waiting for it. Collective where the network is sharded.
  virtual at::Tensor clip_grad_norm(double max_norm) = 0;

  /// Collective. Copies rank 0's buffers (batch norm's running statistics) to all.
  virtual void sync_buffers() = 0;
  virtual dist::Group& group() const = 0;  ///< Over which it is replicated or sharded.

 protected:
  ParallelModule() = default;

  /// Runs a forward. What it throws is told to the other ranks, which would see only that this one stays away.
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

/// The module itself, of a module or of a holder such as torch::nn::Linear.
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

/// Calls `take` with every tensor in what a forward returns: a tensor; an optional, vector, map, pair or tuple of such;
/// or a struct with a member template `each_tensor(take) const` of its own.
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
