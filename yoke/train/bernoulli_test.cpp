#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/bernoulli_cpu_dispatch.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <regex>

namespace yoke::train {
namespace {

bool have_same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

/// Draws by the operator that the dispatcher has and by libtorch's kernel, from generators in one state.
class Bernoulli : public testing::Test {
 protected:
  void compare(at::Tensor ours, double p) {
    SCOPED_TRACE(testing::Message() << ours.sizes() << ours.strides() << ours.scalar_type() << " " << p);
    auto theirs = at::empty_strided(ours.sizes(), ours.strides(), ours.options());
    EXPECT_EQ(ours.bernoulli_(p, ours_).data_ptr(), ours.data_ptr());
    at::cpu::bernoulli_(theirs, p, theirs_);
    EXPECT_TRUE(have_same_bytes(ours, theirs));
    EXPECT_TRUE(have_same_bytes(ours_.get_state(), theirs_.get_state()));
  }
  void skip(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      for (auto& generator : {ours_, theirs_}) at::check_generator<at::CPUGeneratorImpl>(generator)->random();
    }
  }

  at::Generator ours_ = at::detail::createCPUGenerator(3), theirs_ = at::detail::createCPUGenerator(3);
};

TEST_F(Bernoulli, TheProgramHasThisKernel) {
  const auto table = c10::Dispatcher::singleton().findSchemaOrThrow("aten::bernoulli_", "float").dumpComputedTable();
  EXPECT_TRUE(std::regex_search(table, std::regex("(^|\n)CPU: registered at [^\n]*yoke/train/own_kernels.cpp")))
      << table;
}

TEST_F(Bernoulli, HasTheBitsOfLibtorch) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kBool, at::kDouble, at::kInt}) {
    for (const int64_t count : {1, 63, 64, 311, 312, 313, 512, 513, 1000, 5000}) {
      for (const double p : {0.0, 1e-300, 1e-9, 0.1, 0.5, 0.9, 1 - 0x1p-53, 1.0}) {
        compare(at::empty({count}, type), p);
        skip(count % 3);  // so that draws begin in the middle of two words
      }
    }
  }
}

TEST_F(Bernoulli, FillsDenseTensorsInTheOrderOfMemoryAndOthersAsLibtorch) {
  const auto options = at::TensorOptions(at::kFloat);
  compare(at::empty({4, 8, 5, 7}, options.memory_format(at::MemoryFormat::ChannelsLast)), 0.4);
  compare(at::empty({40, 30}, options).t(), 0.4);
  auto ours = at::ones({40, 30}), theirs = at::ones({40, 30});
  auto our_part = ours.narrow(1, 3, 20), their_part = theirs.narrow(1, 3, 20);
  our_part.bernoulli_(0.4, ours_);
  at::cpu::bernoulli_(their_part, 0.4, theirs_);
  EXPECT_TRUE(have_same_bytes(ours, theirs));
}

TEST_F(Bernoulli, DropoutDrawsFromTheDefaultGenerator) {
  const auto x = at::ones({1000}).requires_grad_();
  at::manual_seed(5);
  const auto y = at::dropout(x, 0.25, /*train=*/true);
  auto generator = at::detail::createCPUGenerator(5);
  auto kept = at::empty({1000});
  at::cpu::bernoulli_(kept, 0.75, generator);
  EXPECT_TRUE(at::equal(y.detach(), kept.div(0.75)));
  EXPECT_TRUE(have_same_bytes(at::detail::getDefaultCPUGenerator().get_state(), generator.get_state()));
}

TEST_F(Bernoulli, ErrorsAreLibtorchs) {
  auto x = at::empty({100});
  EXPECT_THROW(x.bernoulli_(1.5, ours_), c10::Error);
  EXPECT_THROW(x.bernoulli_(-0.5, ours_), c10::Error);
  EXPECT_THROW(x.bernoulli_(std::nan(""), ours_), c10::Error);
}

}  // namespace
}  // namespace yoke::train
