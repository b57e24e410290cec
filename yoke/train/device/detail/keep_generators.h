// yoke/train/device/detail/keep_generators.h -- work that must not be seen in the random numbers of what follows.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <utility>
#include <vector>

namespace yoke::train {

/// A scope after which the default generators of the CPU and of `devices` are where they were before it.
class KeepGenerators {
 public:
  explicit KeepGenerators(const std::vector<c10::Device>& devices);
  ~KeepGenerators();
  KeepGenerators(const KeepGenerators&) = delete;
  KeepGenerators& operator=(const KeepGenerators&) = delete;

 private:
  void keep(at::Generator generator);
  std::vector<std::pair<at::Generator, at::Tensor>> kept_;
};

}  // namespace yoke::train
