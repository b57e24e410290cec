#include "yoke/contract/program.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/contract/rank_env.h"

namespace yoke {
namespace {

// A script that starts a training must see that Ctrl-C ended it, although its work is saved.
TEST(Program, ReturnsTheStatusOfWhatEndedIt) {
  EXPECT_EQ(run_program("test", [] {}), 0);
  EXPECT_EQ(run_program("test", [] { throw Error(ErrorCode::kNotFound, "nothing"); }),
            exit_status(ErrorCode::kNotFound));
  note_interrupt();
  EXPECT_EQ(run_program("test", [] {}), 128 + SIGINT);
  const RankEnv one{.source = RankSource::kTorchrun, .master_port = 29'500};
  auto first_of_two = one;
  first_of_two.world_size = 2;
  for (const auto& rank : {one, first_of_two}) {  // kill -INT of one of several ranks does not fail the job
    Environment environment;
    write_rank_env(rank, environment);
    for (const auto& variable : environment.to_strings()) {
      const auto equals = variable.find('=');
      setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
    }
    EXPECT_EQ(run_program("test", [] {}), rank.world_size == 1 ? 128 + SIGINT : 0);
    for (const auto& variable : environment.to_strings()) unsetenv(variable.substr(0, variable.find('=')).c_str());
  }
  EXPECT_EQ(run_program("test", [] { throw Error(ErrorCode::kNotFound, "nothing"); }),
            exit_status(ErrorCode::kNotFound));
}

}  // namespace
}  // namespace yoke
