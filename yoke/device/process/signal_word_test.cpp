#include "yoke/device/process/signal_word.h"

#include <gtest/gtest.h>

#include <csignal>

#include "yoke/base/error.h"

namespace yoke::device {
namespace {

TEST(Signals, ByNameAndNumber) {
  EXPECT_EQ(parse_signal("TERM"), SIGTERM);
  EXPECT_EQ(parse_signal("SIGUSR1"), SIGUSR1);
  EXPECT_EQ(parse_signal("9"), SIGKILL);
  for (const char* text : {"", "0", "-1", "SIG", "term", "65", "9x", "SIG9", "\x1b[2J"}) {
    EXPECT_THROW(parse_signal(text), Error) << text;
  }
  EXPECT_TRUE(is_ending(SIGINT));
  EXPECT_FALSE(is_ending(SIGSTOP));
  EXPECT_FALSE(is_ending(SIGUSR1));
}

}  // namespace
}  // namespace yoke::device
