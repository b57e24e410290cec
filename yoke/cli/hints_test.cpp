#include "yoke/cli/hints.h"

#include <gtest/gtest.h>

namespace yoke::cli {
namespace {

using List = std::vector<std::string>;

std::optional<std::string> find(const List& words) {
  return find_misplaced_option(words, [](std::string_view name) {
    return name == "-n" || name == "-q" || name == "--log-dir" || name == "--help";
  });
}

TEST(Hints, OptionsOfYokeRunAmongTheProgramsOwn) {
  EXPECT_EQ(find({"./p", "-n", "2"}), "-n");
  EXPECT_EQ(find({"./p", "x", "-n", "gpu"}), "-n");
  EXPECT_EQ(find({"./p", "--log_dir=x"}), "--log_dir=x");
  EXPECT_EQ(find({"./p", "--log-dir", "x"}), "--log-dir");
}

TEST(Hints, WordsThatMayWellBeTheProgramsAreLeftAlone) {
  EXPECT_EQ(find({"./p"}), std::nullopt);
  EXPECT_EQ(find({"./p", "-n", "name"}), std::nullopt);
  EXPECT_EQ(find({"./p", "-n"}), std::nullopt);
  EXPECT_EQ(find({"./p", "-q"}), std::nullopt) << "short options mean something else in every program";
  EXPECT_EQ(find({"./p", "--help"}), std::nullopt);
  EXPECT_EQ(find({"./p", "--epochs", "3"}), std::nullopt);
  EXPECT_EQ(find({"sh", "-c", "x", "--", "-n", "2"}), std::nullopt);
}

TEST(Hints, AreForJobsThatFailedAtOnce) {
  const auto hint = [](int status, bool is_quick) {
    return hint_about({.status = status, .is_quick = is_quick}, {"./p", "-n", "2"},
                      [](std::string_view name) { return name == "-n"; });
  };
  EXPECT_EQ(hint(2, true), "-n was given to ./p; options of `yoke run` come before the program: yoke run -n ... ./p");
  EXPECT_EQ(hint(0, true), std::nullopt);
  EXPECT_EQ(hint(2, false), std::nullopt);
  EXPECT_EQ(hint(139, true), std::nullopt) << "a signal";
  EXPECT_EQ(hint(127, true), std::nullopt) << "there is no such file";
}

TEST(Hints, AMissingInterpreterIsNotAMissingProgram) {
  const auto hint = hint_about({.status = 127, .is_quick = true}, {"/bin/sh"}, [](std::string_view) { return false; });
  ASSERT_TRUE(hint);
  EXPECT_TRUE(hint->starts_with("/bin/sh is there, and the interpreter"));
}

}  // namespace
}  // namespace yoke::cli
