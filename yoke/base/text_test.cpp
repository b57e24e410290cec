#include "yoke/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke {
namespace {

TEST(Text, SplitsAtSeparatorsAndAfterTerminators) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  EXPECT_THAT(split("", ','), IsEmpty());
  EXPECT_THAT(split("a,,b", ','), ElementsAre("a", "", "b"));
  EXPECT_THAT(split(",a,", ','), ElementsAre("", "a", ""));
  EXPECT_THAT(lines_of(""), IsEmpty());
  EXPECT_THAT(lines_of("a\n\nb"), ElementsAre("a", "", "b"));
  EXPECT_THAT(lines_of("\n"), ElementsAre(""));
  EXPECT_THAT(lines_of("a\n\n"), ElementsAre("a", ""));
  EXPECT_THAT(words_of(" \t a  b\r"), ElementsAre("a", "b"));
  EXPECT_THAT(words_of(" \r"), IsEmpty());
}

TEST(Text, ChangesTheCaseOfAsciiAlone) {
  EXPECT_EQ(lower_case("A-Z_09 \xc3\x84 \xff["), "a-z_09 \xc3\x84 \xff[");
  EXPECT_EQ(upper_case("a-z_09 \xc3\xa4 \xff{"), "A-Z_09 \xc3\xa4 \xff{");
}

TEST(Text, MakesHarmlessWhatATerminalWouldObey) {
  EXPECT_EQ(printable("plain αβ 文"), "plain αβ 文");
  EXPECT_EQ(printable("a\x1b[31mred\x1b]0;title\x07"), "a?[31mred?]0;title?");
  EXPECT_EQ(printable("tab\tline\nend\r"), "tab line end?");
  EXPECT_EQ(printable("c1 \xc2\x9b[2J"), "c1 ?[2J") << "U+009B is an escape sequence's start to some terminals";
  EXPECT_EQ(printable("over\xe2\x80\xae"
                      "ride"),
            "over?ride");
  EXPECT_EQ(printable("a\u200bb\u00adc\u3164"), "a?b?c?") << "or two names would look alike";
  EXPECT_EQ(printable("می\u200cخواهم"), "می\u200cخواهم") << "a joiner of Persian";
  EXPECT_EQ(printable(std::string_view("nul\0byte", 8)), "nul?byte");
}

TEST(Text, ReplacesWhatIsNotUtf8) {
  EXPECT_EQ(printable("\xff\xfe"), "??");
  EXPECT_EQ(printable("\xc3"), "?") << "cut short";
  EXPECT_EQ(printable("\xc0\xaf"), "??") << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80"), "???") << "a surrogate";
  EXPECT_EQ(printable("\xf5\x80\x80\x80"), "????") << "beyond Unicode";
}

TEST(Text, KnowsWidths) {
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("文字"), 4);
  EXPECT_EQ(display_width("e\xcc\x81"), 1);
}

TEST(Text, CutsAndPads) {
  EXPECT_EQ(fit("abcdef", 6), "abcdef");
  EXPECT_EQ(fit("abcdef", 4), "abc…");
  EXPECT_EQ(fit("文字文字", 4), "文…") << "half of a wide character is not shown";
  EXPECT_EQ(fit("abc", 0), "");
  EXPECT_EQ(pad("ab", 4), "ab  ");
  EXPECT_EQ(pad("ab", 4, Align::kRight), "  ab");
  EXPECT_EQ(pad("文字", 4), "文字");
  EXPECT_EQ(pad("abcdef", 4), "abc…");
}

TEST(PrintableWithColours, KeepsColoursAndNothingElseThatATerminalObeys) {
  EXPECT_EQ(printable_with_colours("plain\ttext"), "plain text");
  EXPECT_EQ(printable_with_colours("\x1b[1;31mred\x1b[0m x"), "\x1b[1;31mred\x1b[0m x\x1b[0m");
  EXPECT_EQ(printable_with_colours("a\x1b[2Jb\x1b]0;title\ac"), "a?[2Jb?]0;title?c");
  EXPECT_EQ(printable_with_colours("\x1b[31"), "?[31") << "cut short";
  EXPECT_EQ(printable_with_colours("\x1b["), "?[");
  EXPECT_EQ(printable_with_colours("\x1b[38:2:1:2:3mx\x1b[31\nm"), "\x1b[38:2:1:2:3mx?[31 m\x1b[0m");
  EXPECT_EQ(printable_with_colours("\xff\x9b"
                                   "31m"),
            "??31m");
}

}  // namespace
}  // namespace yoke
