#include "yoke/launch/torchrun/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::launch {
namespace {

using testing::HasSubstr;

constexpr device::CpuCount kCpus{.num_cpus = 12, .num_numa_nodes = 4};
device::GpuCount three_gpus() { return {3, ""}; }
device::GpuCount no_gpu() { return {0, "no NVIDIA driver"}; }
device::GpuCount not_asked() {
  ADD_FAILURE() << "the driver was asked needlessly";
  return {};
}

TEST(NumRanks, MeansWhatTorchrunMeans) {
  EXPECT_EQ(parse_num_ranks("5", kCpus, not_asked), 5);
  EXPECT_EQ(parse_num_ranks("cpu", kCpus, not_asked), 12);
  EXPECT_EQ(parse_num_ranks("gpu", kCpus, three_gpus), 3);
  EXPECT_EQ(parse_num_ranks("auto", kCpus, three_gpus), 3);
  EXPECT_EQ(parse_num_ranks("auto", kCpus, no_gpu), 12);
}

TEST(NumRanks, SaysWhatIsWrong) {
  const auto error_of = [](const char* text) -> std::string {
    return test::error_of([&] { parse_num_ranks(text, kCpus, no_gpu); }).what();
  };
  EXPECT_THAT(error_of("0"), HasSubstr("-n 0: at least one rank is needed"));
  EXPECT_THAT(error_of("-5"), HasSubstr("at least one rank"));
  EXPECT_THAT(error_of("x"), HasSubstr("-n x: not a number of ranks"));
  EXPECT_THAT(error_of("2x"), HasSubstr("not a number"));
  EXPECT_THAT(error_of("99999999999"), HasSubstr("too many"));
  EXPECT_THAT(error_of("gpu"), HasSubstr("no NVIDIA driver"));
}

TEST(NumRanks, RecipesUseEveryDevice) {
  EXPECT_EQ(default_num_ranks(kCpus, three_gpus), 3);
  EXPECT_EQ(default_num_ranks(kCpus, no_gpu), 4);
  EXPECT_EQ(default_num_ranks({.num_cpus = 2, .num_numa_nodes = 1}, no_gpu), 2);
  EXPECT_EQ(default_num_ranks({.num_cpus = 1, .num_numa_nodes = 1}, no_gpu), 1);
}

}  // namespace
}  // namespace yoke::launch
