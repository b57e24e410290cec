// Where a failed program says that its error came from. The functions of the "user" are in a namespace of their own.
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <exception>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/contract/failure_place.h"
#include "yoke/contract/program.h"
#include "yoke/train/device/detail/call_site.h"

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

/// A function of yoke that is called by the user and not by libtorch.
[[gnu::noinline]] std::string calls_yoke() {
  auto function = yoke::train::user_call().function;
  function.shrink_to_fit();  // no tail call
  return function;
}

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

TEST(CallSite, OfAFunctionThatTheUserCallsItself) { EXPECT_THAT(lab::calls_yoke(), HasSubstr("lab::calls_yoke")); }

TEST(ThrowSite, OfErrorsThatWereHandledBeforeIsForgotten) {
  EXPECT_THAT(last_words(lab::after_others), HasSubstr("a bad value (lab::own_error())"));
}

/// What a destructor learns that an exception calls.
struct Witness {
  std::string& text;
  ~Witness() { text = yoke::thrown_text(); }
};

template <class Body>
std::string text_for_destructor(const Body& body) {
  std::string text;
  try {
    const Witness witness{text};
    body();
  } catch (...) {
  }
  return text;
}

void fail_and_catch() {
  try {
    lab::standard_library();
  } catch (const std::out_of_range&) {
  }
}

struct FailsInDestructor {
  ~FailsInDestructor() { fail_and_catch(); }
};

TEST(ThrownText, IsThatOfTheExceptionThatIsOnItsWay) {
  EXPECT_EQ(text_for_destructor(fail_and_catch), "") << "none is";
  EXPECT_EQ(text_for_destructor(lab::own_error), "a bad value");
  EXPECT_EQ(text_for_destructor(lab::error_of_yoke), "no file x.npy");
  EXPECT_EQ(text_for_destructor([] { throw 3; }), "");
  EXPECT_EQ(text_for_destructor([] { throw std::runtime_error(std::string(1000, 'x')); }), std::string(255, 'x'));
  EXPECT_THAT(text_for_destructor(lab::wrong_target), testing::StartsWith("Target 6 is out of bounds."));
  EXPECT_EQ(text_for_destructor(lab::wait_for_thread), "far away");
  EXPECT_EQ(text_for_destructor(lab::backward), "a bad gradient");
}

TEST(ThrownText, IsNotThatOfOthersWhichAreCaughtMeanwhile) {
  EXPECT_EQ(text_for_destructor([] {
              const FailsInDestructor outer;
              lab::own_error();
            }),
            "a bad value");
  EXPECT_EQ(text_for_destructor([] {
              try {
                lab::own_error();
              } catch (const std::exception&) {
                fail_and_catch();
                throw;
              }
            }),
            "a bad value");
  EXPECT_EQ(text_for_destructor([] {
              try {
                lab::own_error();
              } catch (const std::exception&) {
                const auto error = std::current_exception();
                fail_and_catch();
                std::rethrow_exception(error);
              }
            }),
            "a bad value");
}

}  // namespace
