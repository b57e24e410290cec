#include "yoke/dist/detail/outside.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace yoke::dist {
namespace {

// Oracle: the reductions of four ranks that give the same.
TEST(Outside, ResultsAreAsIfAllRanksHadGivenTheSame) {
  const auto backend = outside_backend(1, 4);
  const auto all_reduced = [&](const at::Tensor& given, c10d::ReduceOp::RedOpType op) {
    std::vector<at::Tensor> tensors = {given.clone()};
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    EXPECT_TRUE(backend->allreduce(tensors, options)->wait());
    return tensors[0][0].item<int64_t>();
  };
  const auto three = at::full({2}, 3, at::kLong);
  EXPECT_EQ(all_reduced(three, c10d::ReduceOp::SUM), 12);
  EXPECT_EQ(all_reduced(three, c10d::ReduceOp::PRODUCT), 81);
  EXPECT_EQ(all_reduced(three, c10d::ReduceOp::BXOR), 0);
  for (const auto op : {c10d::ReduceOp::MIN, c10d::ReduceOp::MAX, c10d::ReduceOp::BAND, c10d::ReduceOp::BOR}) {
    EXPECT_EQ(all_reduced(three, op), 3);
  }
  EXPECT_EQ(all_reduced(at::full({2}, 1, at::kBool), c10d::ReduceOp::SUM), 1);
}

}  // namespace
}  // namespace yoke::dist
