// What users could do to each other in the folder of locks.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "tests/claim/attacker.h"
#include "tests/claim/machine.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

class ClaimAttack : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
    const auto result = run(machine_.yoke({"devices", "-d", "0", "--json"}));
    uuid_ = Json::parse(result.out).at("devices").at(0).at("uuid");
    lock_ = machine_.locks() + "/yoke-dev-" + uuid_;
  }

  Result claim(std::vector<std::string> options) const {
    options.insert(options.begin(), "claim");
    options.insert(options.end(), {"--", "true"});
    return run(machine_.yoke_as(kAda, std::move(options)));
  }
  /// Device 0 cannot be claimed, which is said, and the others can.
  void expect_only_the_first_is_blocked(const std::string& why) const {
    const auto refused = claim({"-d", "0"});
    EXPECT_EQ(refused.exit_code, 75) << refused.err;
    EXPECT_THAT(refused.err, Not(HasSubstr("--wait"))) << "only bob or root can help";
    const auto other = claim({"-d", "1", "--memory", "1TiB"});
    EXPECT_THAT(other.err, Not(HasSubstr("device 0"))) << "it was not asked for";
    const auto plan = run(machine_.yoke_as(kAda, {"claim", "-n", "7", "--explain"}));
    EXPECT_THAT(plan.out, AllOf(HasSubstr("device 0 is not given"), HasSubstr(why), HasSubstr(lock_)));
    EXPECT_EQ(claim({"-n", "7"}).exit_code, 0);
  }

  const ClaimMachine machine_;
  std::string uuid_, lock_;
};

TEST_F(ClaimAttack, ASymbolicLinkInPlaceOfALock) {
  machine_.write("victim", "text");
  const Attacker bob(kBob, [&] {
    if (symlink(machine_.path("victim").c_str(), lock_.c_str()) != 0) _exit(1);
  });
  expect_only_the_first_is_blocked("it is a symbolic link, and belongs to uid " + std::to_string(kBob));
  EXPECT_EQ(slurp(machine_.path("victim")), "text");
}

TEST_F(ClaimAttack, AHardLinkInPlaceOfALock) {
  machine_.write("locks/victim", "text");
  ASSERT_EQ(link((machine_.locks() + "/victim").c_str(), lock_.c_str()), 0);
  expect_only_the_first_is_blocked("it has a second name");
  EXPECT_EQ(slurp(machine_.locks() + "/victim"), "text");
}

TEST_F(ClaimAttack, AFileThatOthersCannotOpen) {
  const Attacker bob(kBob, [&] {
    if (open(lock_.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600) < 0 || chmod(lock_.c_str(), 0) != 0) _exit(1);
  });
  expect_only_the_first_is_blocked("it may not be read");
}

TEST_F(ClaimAttack, AFifoInPlaceOfTheAllocationLockHoldsBackNobody) {
  const Attacker bob(kBob, [&] {
    if (mkfifo((machine_.locks() + "/yoke-alloc").c_str(), 0666) != 0) _exit(1);
  });
  EXPECT_EQ(claim({}).exit_code, 0);
  const auto found = run(machine_.yoke({"doctor"}));
  EXPECT_THAT(found.out, AllOf(HasSubstr("yoke-alloc is in the way"), HasSubstr(std::to_string(kBob))));
}

TEST_F(ClaimAttack, ALockThatIsHeldWithoutYokeIsShownWithItsOwner) {
  ASSERT_EQ(claim({"-n", "8"}).exit_code, 0);  // makes the files
  const Attacker bob(kBob, [&] {
    const int fd = open(lock_.c_str(), O_RDONLY);
    if (fd < 0 || flock(fd, LOCK_EX) != 0) _exit(1);
  });
  const auto claims = machine_.claims().at("claims");
  ASSERT_THAT(claims, SizeIs(1));
  EXPECT_EQ(claims[0].at("device_uuid"), uuid_);
  EXPECT_EQ(claims[0].at("user"), std::to_string(kBob));
  EXPECT_EQ(claims[0].at("pid"), bob.pid());
  EXPECT_THAT(claims[0].at("remark").get<std::string>(), HasSubstr("not by yoke"));
  EXPECT_EQ(claim({"-n", "7"}).exit_code, 0);
  EXPECT_EQ(claim({"-n", "8"}).exit_code, 75);
}

TEST_F(ClaimAttack, TheOwnerOfALockFileCannotGiveItsDeviceTwice) {
  ASSERT_EQ(run(machine_.yoke_as(kBob, {"claim", "-n", "8", "--", "true"})).exit_code, 0);  // bob owns the files
  Command ada(machine_.yoke_as(kAda, ClaimMachine::claim_and_wait({"-d", "0"})));
  ASSERT_TRUE(ada.wait_for_output("started"));
  const Attacker bob(kBob, [&] {
    if (unlink(lock_.c_str()) != 0) _exit(1);
  });
  EXPECT_EQ(run(machine_.yoke_as(kBob, {"claim", "-d", "0", "--", "true"})).exit_code, 75);
  const auto claims = machine_.claims().at("claims");
  ASSERT_THAT(claims, SizeIs(1));
  EXPECT_EQ(claims[0].at("user"), std::to_string(kAda));
  EXPECT_THAT(claims[0].at("remark").get<std::string>(), HasSubstr("replaced"));
}

TEST_F(ClaimAttack, ForgedTextDoesNotMoveAClaimToAnotherUser) {
  Command ada(machine_.yoke_as(kAda, ClaimMachine::claim_and_wait({"-d", "0"})));
  ASSERT_TRUE(ada.wait_for_output("started"));
  const Attacker bob(kBob, [&] {
    const auto path = machine_.locks() + "/yoke-claim-" + std::to_string(kBob) + "-1-00";
    const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_RDWR, 0644);
    const auto text = Json{{"keys", {uuid_}}, {"pid", ada.pid()}, {"since", 1}, {"purpose", "forged"}}.dump();
    if (fd < 0 || flock(fd, LOCK_EX) != 0 || write(fd, text.data(), text.size()) < 0) _exit(1);
    // The name says that it is ada's.
    const auto other = machine_.locks() + "/yoke-claim-" + std::to_string(kAda) + "-1-00";
    const int pretended = open(other.c_str(), O_CREAT | O_EXCL | O_RDWR, 0644);
    if (pretended < 0 || flock(pretended, LOCK_EX) != 0 || write(pretended, text.data(), text.size()) < 0) _exit(1);
  });
  const auto claims = machine_.claims().at("claims");
  ASSERT_THAT(claims, SizeIs(1));
  EXPECT_EQ(claims[0].at("user"), std::to_string(kAda));
  EXPECT_EQ(claims[0].at("pid"), ada.pid());
  EXPECT_THAT(claims[0].at("purpose").get<std::string>(), Not(HasSubstr("forged")));
}

TEST_F(ClaimAttack, NobodyElseCanRemoveOrRewriteAClaim) {
  Command ada(machine_.yoke_as(kAda, ClaimMachine::claim_and_wait({"-d", "0"})));
  ASSERT_TRUE(ada.wait_for_output("started"));
  const Attacker bob(kBob, [&] {
    for (const auto& entry : std::filesystem::directory_iterator(machine_.locks())) {
      if (unlink(entry.path().c_str()) == 0 || open(entry.path().c_str(), O_WRONLY) >= 0) _exit(1);
    }
  });
  EXPECT_EQ(machine_.num_claimed(), 1);
}

TEST_F(ClaimAttack, EscapeSequencesInNamesDoNotReachATerminal) {
  Command ada(machine_.yoke_as(kAda, ClaimMachine::claim_and_wait({"--name", "a\x1b[2J\nb\xff"})));
  ASSERT_TRUE(ada.wait_for_output("started"));
  const auto table = run(machine_.yoke({"claims"}));
  EXPECT_THAT(table.out, AllOf(HasSubstr("a?[2J b"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(run(machine_.yoke({"claims", "--json"})).out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(machine_.claims().at("claims"), SizeIs(1));
}

TEST_F(ClaimAttack, AFolderThatIsNotSafeIsRefused) {
  chmod(machine_.locks().c_str(), 0777);
  const auto result = claim({});
  EXPECT_EQ(result.exit_code, 69);
  EXPECT_THAT(result.err, AllOf(HasSubstr("has mode 0777"), HasSubstr("chmod 1777")));
  chmod(machine_.locks().c_str(), 01777);
  ASSERT_EQ(chown(machine_.locks().c_str(), kBob, kBob), 0);
  EXPECT_EQ(claim({}).exit_code, 69) << "bob could remove the locks of others";
}

}  // namespace
}  // namespace yoke::test
