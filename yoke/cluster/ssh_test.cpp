#include "yoke/cluster/ssh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/forked_process.h"
#include "yoke/base/process.h"

namespace yoke::cluster {
namespace {

using test::read_to_end;
using testing::AllOf;
using testing::HasSubstr;

// ssh -G prints the options that ssh would use, and connects to nothing.
TEST(Ssh, AsksNothingAndTheUsersOptionsPrecede) {
  const SshOptions options{.ssh = {"ssh", "-G", "-F", "/dev/null", "-o", "ConnectTimeout=3", "-p", "2222"},
                           .yoke = "yoke"};
  const auto result = test::run({.argv = ssh_command(options, "me@n1.example.org")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("hostname n1.example.org\n"), HasSubstr("user me\n"),
                                HasSubstr("port 2222\n"), HasSubstr("connecttimeout 3\n"), HasSubstr("batchmode yes\n"),
                                HasSubstr("clearallforwardings yes\n"), HasSubstr("requesttty false\n")));
}

TEST(Ssh, AnyPathIsOneWordForTheShellOfTheHost) {
  const test::TemporaryFolder folder;
  for (const auto* name : {"yoke", "my yoke", "it's $(reboot)", "a\"b;c&d", "\\n*"}) {
    folder.write(name, "#!/bin/sh\necho \"$# $1\"\n", true);
    const auto words = ssh_command({.yoke = folder.path(name)}, "n1");
    EXPECT_EQ(words[words.size() - 2], "n1");
    EXPECT_EQ(test::run({.argv = {"sh", "-c", words.back()}}).out, "1 agent\n") << name;
  }
}

TEST(StartByCommand, GivesTheStreamsAndTheEnvironment) {
  auto agent = start_by_command({"sh", "-c", "echo \"$A $B\" >&2; exec cat"}, "n1",
                                {{"PATH=/usr/bin:/bin", "A=a", "B=two words"}});
  char first = 0;
  ASSERT_EQ(read(agent.err.value(), &first, 1), 1);  // it runs
  EXPECT_EQ(first, 'a');
  EXPECT_EQ(getsid(agent.pid), agent.pid) << "Ctrl-C must not reach it";
  write_all(agent.in.value(), std::string_view("bytes\0of\xff", 9), "the agent");
  agent.in.reset();
  EXPECT_EQ(read_to_end(agent.out.value()), std::string("bytes\0of\xff", 9));
  EXPECT_EQ(read_to_end(agent.err.value()), " two words\n");
  EXPECT_EQ(wait_for_child(agent.pid), 0);
}

TEST(StartByCommand, WhoseProgramIsAbsentSaysSo) {
  auto agent = start_by_command({"no-such-ssh", "n1"}, "n1");
  EXPECT_EQ(read_to_end(agent.err.value()), "no-such-ssh: No such file or directory\n");
  EXPECT_EQ(read_to_end(agent.out.value()), "");
  EXPECT_EQ(wait_for_child(agent.pid), 127);
}

}  // namespace
}  // namespace yoke::cluster
