#include "yoke/base/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "yoke/base/error.h"

namespace yoke {
namespace {

TEST(Environment, CopiesTheProcess) {
  setenv("YOKE_TEST_VARIABLE", "a=b", 1);
  const auto environment = Environment::of_process();
  unsetenv("YOKE_TEST_VARIABLE");
  EXPECT_EQ(environment.find("YOKE_TEST_VARIABLE"), "a=b");
  EXPECT_EQ(environment.find("YOKE_TEST_ABSENT"), std::nullopt);
}

TEST(Environment, ReadsWholeNumbersOnly) {
  const Environment environment{{"RANK", "3"}, {"EMPTY", ""}, {"WORD", "3x"}, {"SPACE", " 3"}};
  EXPECT_EQ(environment.find_int("RANK"), 3);
  EXPECT_EQ(environment.find_int("ABSENT"), std::nullopt);
  for (const auto* name : {"EMPTY", "WORD", "SPACE"}) EXPECT_THROW(environment.find_int(name), Error) << name;
}

TEST(Environment, ParseIntRefusesWhatDoesNotFit) {
  EXPECT_EQ(parse_int("-12"), -12);
  for (const auto* text : {"", "1.0", "1e3", "9223372036854775808", "99999999999999999999", "0x10", " 1"}) {
    EXPECT_EQ(parse_int(text), std::nullopt) << text;
  }
}

TEST(Environment, ListsItselfForExecve) {
  Environment environment{{"B", "2"}, {"A", "1"}};
  environment.set("C", "");
  environment.erase("B");
  environment.erase("ABSENT");
  EXPECT_EQ(environment.to_strings(), (std::vector<std::string>{"A=1", "C="}));
}

}  // namespace
}  // namespace yoke
