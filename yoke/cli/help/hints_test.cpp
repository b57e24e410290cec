#include "yoke/cli/help/hints.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

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
  const auto path = (std::filesystem::temp_directory_path() / ("yoke-hint-" + std::to_string(getpid()))).string();
  const auto hint = [&](const std::string& first_line) {
    std::ofstream(path) << first_line << "\nexit 127\n";
    return hint_about({.status = 127, .is_quick = true}, {path}, [](std::string_view) { return false; });
  };
  EXPECT_EQ(hint("#! /bin/no-such-shell -e"),
            path + " exists, but the interpreter that its first line names does not: '/bin/no-such-shell'");
  EXPECT_TRUE(hint("#!/bin/sh\r"));
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  EXPECT_EQ(hint("#!/bin/sh"), std::nullopt) << "what it did ended with 127";
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace yoke::cli
