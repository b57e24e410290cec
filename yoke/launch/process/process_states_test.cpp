#include "yoke/launch/process/process_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>

namespace yoke::launch {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using Change = ProcessStates::Change;

TEST(ProcessStates, TellsWhoStopsAndWhoGoesOn) {
  std::map<pid_t, char> states = {{7, 'R'}, {8, 'S'}};
  ProcessStates watch(seconds(1), [&](pid_t pid) { return states[pid]; });
  EXPECT_EQ(watch.next_time(), std::nullopt);
  ProcessStates::Time now{seconds(100)};
  const auto look = [&] { return watch.look(now += seconds(1)); };
  watch.add(7);
  watch.add(8);
  EXPECT_THAT(look(), IsEmpty());
  states = {{7, 'S'}, {8, 'T'}};
  EXPECT_THAT(look(), ElementsAre(Change{8, 'T'}));
  EXPECT_THAT(look(), IsEmpty()) << "it was told";
  states[8] = 't';
  EXPECT_THAT(look(), IsEmpty()) << "it is still stopped";
  states = {{7, 'D'}, {8, 'R'}};
  EXPECT_THAT(look(), ElementsAre(Change{7, 'D'}, Change{8, 'R'}));
  states[7] = 'T';
  EXPECT_THAT(watch.look(now), IsEmpty()) << "it is not time for that";
  EXPECT_THAT(watch.look_at_all(), ElementsAre(Change{7, 'T'}, Change{8, 'R'}));
  EXPECT_THAT(look(), IsEmpty()) << "it was told";
  states[7] = 0;
  EXPECT_THAT(look(), IsEmpty()) << "it has ended";
  watch.remove(7);
  watch.remove(8);
  EXPECT_EQ(watch.next_time(), std::nullopt);
}

TEST(ProcessStates, AreThoseOfTheKernel) {
  int up[2], down[2];
  ASSERT_EQ(pipe(up), 0);
  ASSERT_EQ(pipe(down), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    // The kernel suspends the parent of a vfork in uninterruptible sleep until the child has ended.
    char byte = 0;
    if (vfork() == 0) _exit(write(up[1], "x", 1) == 1 && read(down[0], &byte, 1) == 1 ? 0 : 1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(up[0], &byte, 1), 1);  // the child of vfork runs, and waits for its own byte
  const auto wait_for = [pid](char wanted) {
    while (state_of_process(pid) != wanted) usleep(1000);
  };
  wait_for('D');
  ASSERT_EQ(write(down[1], "x", 1), 1);
  wait_for('S');  // in pause()
  kill(pid, SIGSTOP);
  wait_for('T');
  kill(pid, SIGKILL);
  wait_for(0);  // nobody has waited for it yet
  waitpid(pid, nullptr, 0);
  EXPECT_EQ(state_of_process(pid), 0);
  for (const int fd : {up[0], up[1], down[0], down[1]}) close(fd);
}

}  // namespace
}  // namespace yoke::launch
