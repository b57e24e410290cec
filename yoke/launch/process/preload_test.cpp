// Tests what is decided before a program is started: whether it can be preloaded, and with which environment. The tests
// in tests/preload start processes.
#include "yoke/launch/process/preload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::launch {
namespace {

using testing::HasSubstr;
using testing::Optional;

TEST(Preload, WhatRanksHaveInCommonIsWhatTheProgramIsLoadedWith) {
  const auto rank = [](std::vector<std::string> environment) {
    return RankPlan{.environment = std::move(environment)};
  };
  EXPECT_EQ(common_environment({rank({"A=1", "RANK=0", "B=2"}), rank({"B=2", "RANK=1", "A=1"}), rank({"A=1", "B=3"})}),
            std::vector<std::string>{"A=1"});
}

TEST(Preload, AProgramThatWouldRunItsMainIsRefused) {
  EXPECT_THAT(Preload::why_not({"/proc/self/exe"}, {}), Optional(HasSubstr("is not linked to libyoke_dist.so")));
  EXPECT_THAT(Preload::why_not({"sh"}, {{"PATH", "/nonexistent:/bin"}}), Optional(HasSubstr("sh is not linked to")));
  EXPECT_THAT(Preload::why_not({"/etc/passwd"}, {}), Optional(HasSubstr("is not a dynamically linked program")));
  EXPECT_THAT(Preload::why_not({"nothing-of-that-name"}, {{"PATH", "/bin"}}), Optional(HasSubstr("is not found")));
  EXPECT_THAT(Preload::why_not({"./train"}, {{"PATH", "/bin"}}), Optional(HasSubstr("is not found")));
}

TEST(Preload, PythonWithoutAScriptIsToldWhatToGive) {
  for (const std::vector<std::string>& argv : {std::vector<std::string>{"python", "-c", "import torch"},
                                               {"/usr/bin/python3.11", "-"},
                                               {"python3", "-i", "train.py"}}) {
    EXPECT_THAT(Preload::why_not(argv, {{"PATH", "/bin"}}), Optional(HasSubstr("give the script itself")));
  }
  EXPECT_EQ(Preload::why_not({"python3", "train.py"}, {}), std::nullopt);
}

TEST(Preload, WhatItsLoadingWouldSpoilIsRefused) {
  EXPECT_THAT(Preload::why_not({"./train", "--log=${local_rank}"}, {}), Optional(HasSubstr("${local_rank}")));
  for (const auto* variable : {"OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PROC_BIND"}) {
    EXPECT_THAT(Preload::why_not({"./train"}, {{variable, "close"}}), Optional(HasSubstr(variable)));
  }
  EXPECT_THAT(Preload::why_not({"./train"}, {{"OMP_PROC_BIND", "false"}}), Optional(HasSubstr("is not found")));
}

}  // namespace
}  // namespace yoke::launch
