// Where a failed program says that its error came from. The functions of the "user" are in a namespace of their own.
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/contract/program.h"

namespace lab {

[[gnu::noinline]] void own_error() { throw std::runtime_error("a bad value"); }

[[gnu::noinline]] void wrong_target() { at::cross_entropy_loss(at::ones({2, 3}), at::full({2}, 6, at::kLong)); }

[[gnu::noinline]] void standard_library() { std::vector<int>(3).at(7) = 1; }

struct Bad : torch::autograd::Function<Bad> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x) { return x + 1; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& /*gradients*/) {
    throw std::invalid_argument("a bad gradient");
  }
};

[[gnu::noinline]] void backward() { Bad::apply(at::ones({2}).requires_grad_()).sum().backward(); }

[[gnu::noinline]] void wait_for_thread() {
  std::async(std::launch::async, [] { throw std::out_of_range("far away"); }).get();
}

[[gnu::noinline]] void error_of_yoke() { throw yoke::Error(yoke::ErrorCode::kNotFound, "no file x.npy"); }

[[gnu::noinline]] void after_others() {
  for (int i = 0; i < 3; ++i) {
    try {
      standard_library();
    } catch (const std::out_of_range&) {
    }
  }
  own_error();
}

}  // namespace lab

namespace {

using testing::HasSubstr;

std::string last_words(const std::function<void()>& body) {
  testing::internal::CaptureStderr();
  EXPECT_NE(yoke::run_program("program", body), 0);
  return testing::internal::GetCapturedStderr();
}

TEST(ThrowSite, IsTheUsersFunction) {
  EXPECT_EQ(last_words(lab::own_error), "program: a bad value (lab::own_error())\n");
  EXPECT_THAT(last_words(lab::wrong_target), HasSubstr("Target 6 is out of bounds. (lab::wrong_target())"));
  EXPECT_THAT(last_words(lab::standard_library), HasSubstr("(lab::standard_library())"));
  // It names its object and reason. The lines of these functions are not known here; tests/train has a program with
  // them.
  EXPECT_EQ(last_words(lab::error_of_yoke), "program: no file x.npy\n");
}

TEST(ThrowSite, OfAnErrorThatPassesThroughLibtorchOrAThread) {
  EXPECT_THAT(last_words(lab::backward), HasSubstr("a bad gradient (lab::Bad::backward("));
  EXPECT_THAT(last_words(lab::wait_for_thread), HasSubstr("far away (lab::wait_for_thread()::"))
      << "where it was thrown, and not where the other thread waited";
}

TEST(ThrowSite, OfErrorsThatWereHandledBeforeIsForgotten) {
  EXPECT_THAT(last_words(lab::after_others), HasSubstr("a bad value (lab::own_error())"));
}

}  // namespace
