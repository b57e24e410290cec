// A small program of a user, compiled with -g and -O2. It prints the line of a call that DeviceGuardrails must name,
// and then the error that names this line; with one to four arguments, it fails, and run_program() names the line. Its
// devices are those of fakes/gpus/host_gpus.cpp.
#include "tests/train/guardrails_program.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <cstdio>
#include <exception>
#include <future>
#include <stdexcept>

#include "yoke/base/error.h"
#include "yoke/contract/program.h"
#include "yoke/train/device/guardrails.h"

namespace {

double train_step(const at::Tensor& weight) {
  const auto loss = (weight * 2).sum();
  std::printf("line %d\n", __LINE__ + 1);
  const double value = loss.item<double>();
  return value / 2;
}

/// The compiler inlines at::Tensor::nonzero() here, whose lines are those of libtorch's header, and between them is().
__attribute__((noinline)) at::Tensor find_positions(at::Tensor weight) {
  const auto& choice = Choice::get();
  std::printf("inlined at line %d\n", __LINE__ + 2);
  if (choice.is("other", weight.dim())) weight = weight + 1000;
  const auto positions = weight.nonzero();
  return positions + 1;
}

__attribute__((noinline)) void fail_in_call(bool as_yoke) {
  std::printf("line %d\n", __LINE__ + 1);
  if (as_yoke) throw yoke::Error(yoke::ErrorCode::kNotFound, "no such file");
  std::printf("line %d\n", __LINE__ + 1);
  at::cross_entropy_loss(at::ones({2, 3}), at::full({2}, 6, at::kLong));
}

/// The compiler inlines the lambda into a function of std::function.
__attribute__((noinline)) void fail_in_hook() {
  const auto loss = at::ones({2}).set_requires_grad(true) * 2;
  loss.register_hook([](const at::Tensor& gradient) {
    std::printf("line %d\n", __LINE__ + 1);
    if (gradient.defined()) throw std::runtime_error("a bad gradient");
    return gradient;
  });
  loss.sum().backward();
}

__attribute__((noinline)) void read_sample() {
  std::printf("line %d\n", __LINE__ + 1);
  throw std::runtime_error("a bad sample");
}

__attribute__((noinline)) void fail_in_another_thread() { std::async(std::launch::async, read_sample).get(); }

void fail(int way) {
  if (way == 3) fail_in_hook();
  if (way == 4) fail_in_another_thread();
  fail_in_call(way == 2);
}

}  // namespace

int main(int argc, char** /*argv*/) {
  if (argc > 1) return yoke::run_program("program", [argc] { fail(argc - 1); });
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
