// Tests which folder has the locks, in a mount namespace with a /run of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/claim/machine.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Runs a script in which `yoke` is the command and /run is empty.
class ClaimFolders : public testing::Test {
 protected:
  void SetUp() override {
    const auto probe = run({.argv = {"unshare", "--mount", "sh", "-c", "mount -t tmpfs -o mode=0755 none /run"}});
    if (geteuid() != 0 || probe.exit_code != 0) GTEST_SKIP() << "needs root and mount namespaces";
  }
  Result script(const std::string& text) const {
    auto options = machine_.yoke({"claims"});
    std::erase_if(options.environment, [](const auto& variable) { return variable.first == "YOKE_CLAIM_DIR"; });
    options.without.emplace_back("YOKE_CLAIM_DIR");
    options.argv = {"unshare", "--mount", "sh", "-c",
                    "mount -t tmpfs -o mode=0755 none /run && mkdir -m 1777 /run/lock || exit 99\n"
                    "yoke() { command=$1; shift; " +
                        machine_.path("yoke") + " $command --deadline 60 \"$@\"; }\n" + text};
    return run(options);
  }

  const ClaimMachine machine_;
};

TEST_F(ClaimFolders, RunYokeIsPreferredToRunLock) {
  const auto result = script(
      "yoke claim -- sh -c 'ls /run/lock' && mkdir -m 1777 /run/yoke && yoke claim -- sh -c 'echo then; ls /run/yoke'");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto first = result.out.substr(0, result.out.find("then"));
  EXPECT_THAT(first, AllOf(HasSubstr("yoke-alloc"), HasSubstr("yoke-claim-0-"), HasSubstr("yoke-dev-GPU-")));
  EXPECT_THAT(result.out.substr(first.size()), HasSubstr("yoke-dev-GPU-"));
}

TEST_F(ClaimFolders, ClaimsInTwoFoldersAreAnError) {
  const auto result = script(
      "yoke claim --for 1h >/dev/null 2>&1 && mkdir -m 1777 /run/yoke || exit 98\n"
      "yoke claim -- true; echo status $?; yoke claims; echo and $?\n"
      "rm -r /run/yoke; yoke claims --json; mv /run/lock /run/old");
  EXPECT_THAT(result.out, HasSubstr("status 69"));
  EXPECT_THAT(result.out, HasSubstr("and 0")) << "whoever looks is told";
  EXPECT_THAT(result.out, HasSubstr("\"pid\": ")) << "and still held";
  EXPECT_THAT(result.err, HasSubstr("devices are claimed in /run/lock"));
}

/// Anybody can write such a file, so it must not keep others from claiming.
TEST_F(ClaimFolders, ClaimsOfOtherUsersInAnotherFolderAreTold) {
  const auto result = script(
      "mkdir -m 1777 /run/yoke && setpriv --reuid 61002 --regid 61002 --clear-groups sh -c '\n"
      "exec 9>/run/lock/yoke-claim-61002-1-99bcce6ba8b4309d; flock 9; sleep 1000' & sleeper=$!\n"
      "until [ -e /run/lock/yoke-claim-61002-1-99bcce6ba8b4309d ] && ! flock -n /run/lock/yoke-claim-61002-1-* true; "
      "do sleep 0.01; done\n"
      "yoke claim -- echo got; echo status $?; yoke claims; echo status $?; kill $sleeper");
  EXPECT_THAT(result.out, AllOf(HasSubstr("got\nstatus 0"), Not(HasSubstr("status 69")))) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("warning: uid 61002 has a claim in /run/lock"), HasSubstr("/run/yoke")));
}

TEST_F(ClaimFolders, AWrongRunYokeIsNotPassedOver) {
  const auto result = script("mkdir -m 0755 /run/yoke; yoke claim -- true; echo status $?");
  EXPECT_THAT(result.out, HasSubstr("status 69"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("/run/yoke"), HasSubstr("mode 0755"), HasSubstr("chmod 1777")));
}

TEST_F(ClaimFolders, AFullDiskLosesNoDevice) {
  const auto result = script(
      "mkdir /run/yoke && mount -t tmpfs -o size=4k,mode=1777 none /run/yoke || exit 98\n"
      "yoke claim -n 8 -- echo works && head -c 4096 /dev/zero > /run/yoke/other\n"
      "yoke claim -n 8 -- echo should-not-run; echo status $?\n"
      "ls /run/yoke | grep claim-; rm /run/yoke/other; yoke claim -n 8 -- echo works again");
  EXPECT_THAT(result.out, AllOf(HasSubstr("works\n"), HasSubstr("status 75"), HasSubstr("works again"),
                                Not(HasSubstr("should-not-run"))));
  EXPECT_THAT(result.err, AllOf(HasSubstr("no space is left in /run/yoke"), HasSubstr("root has 4.0 KiB in "),
                                HasSubstr("which that user or root can remove")));
}

}  // namespace
}  // namespace yoke::test
