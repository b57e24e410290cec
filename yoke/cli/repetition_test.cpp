#include "yoke/cli/repetition.h"

#include <gmock/gmock.h>

#include <cmath>
#include <sstream>

#include "yoke/base/error.h"

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
  std::ostringstream out;
  auto context = context_of(out);
  for (const double interval_s : {0.0, -1.0, 0.01, 1e9, std::nan("")}) {
    EXPECT_THROW(repeat({.interval_s = interval_s}, PictureKind::kText, context, [](int64_t) { return Picture{}; }),
                 Error)
        << interval_s;
  }
}

TEST(Repetition, ChangesAreMarked) {
  EXPECT_EQ(highlight_changes("same", "same"), "same");
  EXPECT_EQ(highlight_changes("a 12% b", "a 97% b"), "a \x1b[7m12\x1b[27m% b");
  EXPECT_EQ(highlight_changes("a…c", "a-c"), "a\x1b[7m…\x1b[27mc") << "a character is marked as a whole";
  EXPECT_EQ(highlight_changes("longer", "long"), "long\x1b[7mer\x1b[27m");
  EXPECT_EQ(highlight_changes("new", ""), "new");
}

}  // namespace
}  // namespace yoke::cli
