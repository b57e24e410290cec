// yoke/train/record/small_step_test.h -- what the tests of Recorded share.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "yoke/train/record/recorded.h"

namespace yoke::train {

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.contiguous().const_data_ptr(), b.contiguous().const_data_ptr(), a.nbytes()) == 0;
}

/// y = x * weight, with a function of the test around it.
struct Small {
  explicit Small(RecordedOptions given = {}) : options(std::move(given)) {
    options.warn = [this](const std::string& message) { warnings.push_back(message); };
  }
  /// Calls a recorded step six times, and returns why it was not recorded.
  std::string why_not(const std::function<at::Tensor(const at::Tensor& x)>& step) {
    Recorded recorded(step, options);
    for (int i = 0; i < 6; ++i) recorded(at::randn({4, 3}));
    EXPECT_EQ(recorded.why_not().empty(), warnings.empty());
    return recorded.why_not();
  }
  at::Tensor weight = at::randn({3}).requires_grad_();
  std::vector<std::string> warnings;
  RecordedOptions options;
};

}  // namespace yoke::train
