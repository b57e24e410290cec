#include "yoke/launch/output/line_assembler.h"

#include <gtest/gtest.h>

namespace yoke::launch {
namespace {

std::string lines_of(LineAssembler& assembler, std::initializer_list<std::string_view> portions) {
  std::string lines;
  for (const auto portion : portions) assembler.feed(portion, lines);
  return lines;
}

TEST(LineAssembler, OnlyWholeLinesComeOut) {
  LineAssembler assembler("[3] ");
  EXPECT_EQ(lines_of(assembler, {"one", " and", " two\nthr"}), "[3] one and two\n");
  EXPECT_EQ(lines_of(assembler, {"ee\n\nfour\n"}), "[3] three\n[3] \n[3] four\n");
}

TEST(LineAssembler, TheLastLineIsFlushedAtTheEnd) {
  LineAssembler assembler("");
  std::string lines;
  assembler.feed("whole\npart", lines);
  assembler.finish(lines);
  EXPECT_EQ(lines, "whole\npart\n");
  assembler.finish(lines);
  EXPECT_EQ(lines, "whole\npart\n") << "a second time there is nothing";
}

// Oracle: the lines do not depend on how the bytes are divided into portions.
TEST(LineAssembler, PortionsDoNotMatter) {
  const std::string text = "plain\n\r 1%\r 50%\r100%\nwindows\r\nbar 1\rbar 2\r\n\n\xC3\xA4\xC3\xB6\n tail\rend";
  LineAssembler whole("> ");
  std::string expected;
  whole.feed(text, expected);
  whole.finish(expected);
  EXPECT_EQ(expected, "> plain\n> 100%\n> windows\n> bar 2\n> \n> \xC3\xA4\xC3\xB6\n> end\n");
  for (size_t size = 1; size < text.size(); ++size) {
    LineAssembler assembler("> ");
    std::string lines;
    for (size_t at = 0; at < text.size(); at += size) assembler.feed(std::string_view(text).substr(at, size), lines);
    assembler.finish(lines);
    EXPECT_EQ(lines, expected) << "portions of " << size;
  }
}

TEST(LineAssembler, ShowsProgressOnlyOfLinesThatAreRewritten) {
  LineAssembler assembler("");
  std::string lines;
  assembler.feed("prompt? ", lines);
  EXPECT_EQ(assembler.progress(), "");
  assembler.feed("\r10%", lines);
  EXPECT_EQ(assembler.progress(), "10%");
  assembler.feed("\r20%\r", lines);
  EXPECT_EQ(assembler.progress(), "20%");
  assembler.feed("done\n", lines);
  EXPECT_EQ(assembler.progress(), "");
  EXPECT_EQ(lines, "done\n");
}

TEST(LineAssembler, LongLinesAreCutBetweenCharacters) {
  LineAssembler assembler("# ", 4);
  std::string lines;
  assembler.feed("abcdefghij\n", lines);
  EXPECT_EQ(lines, "# abcd\n# efgh\n# ij\n");
  lines.clear();
  assembler.feed(
      "abc\xC3\xA4"
      "de\n",
      lines);
  EXPECT_EQ(lines,
            "# abc\n# \xC3\xA4"
            "de\n");
  lines.clear();
  assembler.feed("abcd\n", lines);
  EXPECT_EQ(lines, "# abcd\n") << "not one byte too long";
}

// In a file, a progress bar of hours shows that it moves.
TEST(LineAssembler, ALongProgressBarIsSampled) {
  LineAssembler assembler("[3] ");
  std::string lines;
  const std::chrono::steady_clock::time_point start{std::chrono::hours(1)};
  const auto update = [&](const char* text, std::chrono::seconds after) {
    lines.clear();
    assembler.feed(text, lines);
    assembler.sample_progress(start + after, lines);
    return lines;
  };
  constexpr auto kEvery = LineAssembler::kProgressEvery;
  EXPECT_EQ(update("\r 0%", {}), "");
  EXPECT_EQ(update("\r 1%", kEvery - std::chrono::seconds(1)), "");
  EXPECT_EQ(update("\r 2%", kEvery), "[3]  2%\n");
  EXPECT_EQ(update("\r 3%", kEvery * 2 - std::chrono::seconds(1)), "");
  EXPECT_EQ(update("\r 4%\r", kEvery * 3), "[3]  4%\n") << "tqdm ends with the carriage return";
  EXPECT_EQ(update("\r 5%\nnext", kEvery * 9), "[3]  5%\n") << "the line has ended";
  EXPECT_EQ(update(" line", kEvery * 20), "") << "not a progress bar";
}

}  // namespace
}  // namespace yoke::launch
