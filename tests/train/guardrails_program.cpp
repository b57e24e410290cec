// A small program of a user, compiled with -g. It prints the line of a call that DeviceGuardrails must name, and then
// the error that names this line. Its devices are those of fakes/gpus/host_gpus.cpp.
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

}  // namespace

int main() {
  const auto weight = at::ones({3}, c10::Device(c10::kCUDA, 0));
  try {
    const yoke::train::DeviceGuardrails guard;
    std::printf("loss %g\n", train_step(weight));
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
  }
}
