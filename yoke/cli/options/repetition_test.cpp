#include "yoke/cli/options/repetition.h"

#include <gmock/gmock.h>

#include <CLI/App.hpp>
#include <sstream>

namespace yoke::cli {
namespace {

Context context_of(std::ostream& out) { return {.out = out, .environment = {}, .installation = {}, .rest = {}}; }

TEST(Repetition, WithoutTheOptionThereIsOnePicture) {
  std::ostringstream out;
  auto context = context_of(out);
  std::vector<int64_t> numbers;
  repeat({}, PictureKind::kText, context, [&](int64_t number) {
    numbers.push_back(number);
    return Picture{.text = "one\n"};
  });
  EXPECT_EQ(out.str(), "one\n");
  EXPECT_THAT(numbers, testing::ElementsAre(0));
}

TEST(Repetition, RefusesWhatIsNoInterval) {
  for (const char* text : {"0", "-1", "0.01", "1e9", "nan"}) {
    CLI::App app;
    Repetition repetition;
    add_watch_option(app, repetition);
    EXPECT_THROW(app.parse(std::string("--watch=") + text), CLI::ValidationError) << text;
  }
}

TEST(Repetition, TheIntervalMayBeLeftOut) {
  for (const auto& [text, interval_s] : {std::pair{"", 2.0}, {"--watch", 2.0}, {"--watch 0.5", 0.5}}) {
    CLI::App app;
    Repetition repetition;
    add_watch_option(app, repetition);
    app.parse(text);
    EXPECT_EQ(repetition.interval_s, interval_s) << text;
    EXPECT_EQ(repetition.is_wanted(), *text != '\0');
  }
}

TEST(Repetition, ChangesAreMarked) {
  EXPECT_EQ(highlight_changes("same", "same"), "same");
  EXPECT_EQ(highlight_changes("a 12% b", "a 97% b"), "a \x1b[7m12\x1b[27m% b");
  EXPECT_EQ(highlight_changes("a…c", "a-c"), "a\x1b[7m…\x1b[27mc") << "a character is marked as a whole";
  EXPECT_EQ(highlight_changes("longer", "long"), "long\x1b[7mer\x1b[27m");
  EXPECT_EQ(highlight_changes("new", ""), "new");
}

TEST(FirstLines, AreThoseThatFitTheTerminal) {
  EXPECT_EQ(first_lines("a\nb\nc\n", 4), "a\nb\nc\n");
  EXPECT_EQ(first_lines("a\nb\nc\nd\n", 4), "a\nb\n(2 more lines; `yoke top` scrolls)\n");
  EXPECT_EQ(first_lines("a\nb\nc\nd\n", 0), "a\nb\nc\nd\n");
}

}  // namespace
}  // namespace yoke::cli
