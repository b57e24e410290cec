#include "yoke/base/spelling.h"

#include <gtest/gtest.h>

namespace yoke {
namespace {

const std::vector<std::string> kCommands = {"run", "train", "new", "completion"};

TEST(Spelling, FindsWhatWasMeant) {
  EXPECT_EQ(nearest("rnu", kCommands), "run");
  EXPECT_EQ(nearest("trian", kCommands), "train");
  EXPECT_EQ(nearest("completions", kCommands), "completion");
  EXPECT_EQ(did_you_mean("trains", kCommands), " (did you mean `train`?)");
}

TEST(Spelling, SaysNothingRatherThanNonsense) {
  EXPECT_EQ(nearest("bench", kCommands), std::nullopt);
  EXPECT_EQ(nearest("x", kCommands), std::nullopt);
  EXPECT_EQ(did_you_mean("", kCommands), "");
}

}  // namespace
}  // namespace yoke
