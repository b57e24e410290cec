#include "yoke/base/program.h"

#include <gtest/gtest.h>

#include <csignal>

#include "yoke/base/error.h"

namespace yoke {
namespace {

// A script that starts a training must see that Ctrl-C ended it, although its work is saved.
TEST(Program, ReturnsTheStatusOfWhatEndedIt) {
  EXPECT_EQ(run_program("test", [] {}), 0);
  EXPECT_EQ(run_program("test", [] { throw Error(ErrorCode::kNotFound, "nothing"); }),
            exit_status(ErrorCode::kNotFound));
  note_interrupt();
  EXPECT_EQ(run_program("test", [] {}), 128 + SIGINT);
  EXPECT_EQ(run_program("test", [] { throw Error(ErrorCode::kNotFound, "nothing"); }),
            exit_status(ErrorCode::kNotFound));
}

}  // namespace
}  // namespace yoke
