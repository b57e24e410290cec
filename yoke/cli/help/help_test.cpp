#include "yoke/cli/help/help.h"

#include <gtest/gtest.h>

namespace yoke::cli {
namespace {

TEST(Help, TextsAreWrappedBetweenWords) {
  EXPECT_EQ(wrapped("", 10), "");
  EXPECT_EQ(wrapped("one two three", 80), "one two three");
  EXPECT_EQ(wrapped("one two three", 7), "one two\nthree");
  EXPECT_EQ(wrapped("one two three", 6), "one\ntwo\nthree");
  EXPECT_EQ(wrapped("much-too-long word", 4), "much-too-long\nword");
  EXPECT_EQ(wrapped("  line\nfeeds  too ", 80), "line feeds too");
  EXPECT_EQ(wrapped("äöü äöü", 7), "äöü äöü") << "columns, not bytes";
}

TEST(Help, ExamplesStayAsTheyAre) {
  EXPECT_EQ(wrapped_footer("Examples:\n  yoke run -n 2 -- ./train   x", 10),
            "Examples:\n  yoke run -n 2 -- ./train   x");
  EXPECT_EQ(wrapped_footer("Examples:\n  a  b\n\nfirst\nparagraph\n\nsecond one", 12),
            "Examples:\n  a  b\n\nfirst\nparagraph\n\nsecond one");
  EXPECT_EQ(wrapped_footer("Examples:\n  a  b\n\nfirst\nparagraph", 40), "Examples:\n  a  b\n\nfirst paragraph");
}

}  // namespace
}  // namespace yoke::cli
