// yoke/train/device/detail/keep_generators.h -- runs code without an effect on later random numbers.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <utility>
#include <vector>

namespace yoke::train {

/// A scope that restores the states of the default generators of the CPU and of `devices` at its end.
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
