// A small program of a user, compiled with -g and -O2. It prints the line of a call that DeviceGuardrails must name,
// and then the error that names this line. Its devices are those of fakes/gpus/host_gpus.cpp.
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>

#include <cstdio>
#include <exception>

#include "yoke/train/device/guardrails.h"

namespace {

double train_step(const at::Tensor& weight) {
  const auto loss = (weight * 2).sum();
  std::printf("line %d\n", __LINE__ + 1);
  const double value = loss.item<double>();
  return value / 2;
}

/// The compiler inlines at::Tensor::nonzero() here, whose lines are those of libtorch's header.
__attribute__((noinline)) at::Tensor find_positions(const at::Tensor& weight) {
  const auto twice = weight * 2;
  std::printf("lines %d to %d\n", __LINE__ - 1, __LINE__ + 2);
  const auto positions = twice.nonzero();
  return positions + 1;
}

}  // namespace

int main() {
  const auto weight = at::ones({3}, c10::Device(c10::kCUDA, 0));
  try {
    const yoke::train::DeviceGuardrails guard;
    std::printf("loss %g\n", train_step(weight));
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
  }
  try {
    const yoke::train::DeviceGuardrails guard;
    find_positions(weight);
  } catch (const std::exception& error) {
    std::printf("inlined: %s\n", error.what());
  }
}
