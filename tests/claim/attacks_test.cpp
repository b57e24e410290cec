// What users could do to each other in the folder of locks.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <optional>

#include "tests/claim/attacker.h"
#include "tests/claim/machine.h"
#include "yoke/base/process.h"
#include "yoke/base/user_socket.h"

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

/// Keeps others from opening files that exist, or are made here. The kernel ends that after 45 s.
void lease(const std::vector<std::string>& files) {
  std::signal(SIGIO, SIG_IGN);
  for (const auto& file : files) {
    const int fd = open(file.c_str(), O_CREAT | O_RDONLY, 0644);
    if (fd < 0 || fcntl(fd, F_SETLEASE, F_WRLCK) != 0) _exit(1);
  }
}

TEST_F(ClaimAttack, AFileLeaseOnALock) {
  const Attacker bob(kBob, [&] { lease({lock_}); });
  expect_only_the_first_is_blocked("a file lease keeps others from opening it (of process " +
                                   std::to_string(bob.pid()) + "), and belongs to uid " + std::to_string(kBob));
  const auto claims = run(machine_.yoke_as(kAda, {"claims"}));
  EXPECT_THAT(claims.err, AllOf(HasSubstr(lock_), HasSubstr(std::to_string(bob.pid()))));
}

TEST_F(ClaimAttack, AFileLeaseOnTheAllocationLocksHoldsBackNobody) {
  const Attacker bob(kBob, [&] { lease({machine_.locks() + "/yoke-alloc", machine_.locks() + "/yoke-alloc-2"}); });
  EXPECT_EQ(claim({}).exit_code, 0);
  EXPECT_THAT(run(machine_.yoke({"doctor"})).out, HasSubstr("yoke-alloc is in the way: a file lease"));
}

TEST_F(ClaimAttack, WhoWaitsKeepsThePlaceWhileAFileIsInTheWay) {
  std::optional<Attacker> bob(std::in_place, kBob, [&] { lease({lock_}); });
  Command ada(machine_.yoke_as(kAda, ClaimMachine::claim_and_wait({"-n", "8", "--wait"})));
  ASSERT_TRUE(wait_until([&] { return machine_.claims().at("queue").size() == 1; }));
  bob.reset();
  EXPECT_TRUE(ada.wait_for_output("started"));
}

TEST_F(ClaimAttack, FilesInTheWayAreToldByAllWhoLook) {
  constexpr uid_t kDaemon = 1;  // a user whom each machine has
  const Attacker daemon(kDaemon, [&] {
    if (mkfifo(lock_.c_str(), 0666) != 0) _exit(1);
  });
  const auto told = AllOf(HasSubstr(lock_ + " is in the way"), HasSubstr("belongs to daemon;"));
  EXPECT_THAT(run(machine_.yoke_as(kAda, {"claims"})).err, told);
  const auto check = run(machine_.yoke({"admin", "check"}));
  EXPECT_EQ(check.exit_code, 1);
  EXPECT_THAT(check.out, told);
  EXPECT_THAT(run(machine_.yoke({"doctor"})).out, told);
}

TEST_F(ClaimAttack, ALockWhoseProcessHasEndedIsNobodys) {
  const Attacker bob(kBob, [&] {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) _exit(1);
    const pid_t locker = fork();
    if (locker == 0) {
      const UniqueFd fd(open(lock_.c_str(), O_CREAT | O_RDONLY, 0644));
      if (!fd || flock(fd.value(), LOCK_EX) != 0) _exit(1);
      const auto byte = std::byte('x');
      const int number = fd.value();
      _exit(send_with_fds(ends[0], {&byte, 1}, {&number, 1}) ? 0 : 1);
    }
    int status = 0;
    if (waitpid(locker, &status, 0) != locker || status != 0) _exit(1);
  });
  const auto claims = machine_.claims().at("claims");
  ASSERT_THAT(claims, SizeIs(1));
  EXPECT_EQ(claims[0].at("user"), nullptr);
  EXPECT_THAT(claims[0].at("remark").get<std::string>(), HasSubstr("which has ended"));
  EXPECT_THAT(run(machine_.yoke_as(kAda, {"claim", "-d", "0", "--", "true"})).err, HasSubstr("which has ended"));
}

TEST_F(ClaimAttack, ANoteThatNamesNoProcessIsShownAndEndedByWhoLockedIt) {
  for (const auto* const text : {R"({"keys": ["UUID"], "pid": 1, "start_ticks": 0, "since": 1})", "x"}) {
    const Attacker bob(kBob, [&] {
      const auto path = machine_.locks() + "/yoke-claim-" + std::to_string(kBob) + "-1-00";
      unlink(path.c_str());
      auto note = std::string(text);
      if (const auto at = note.find("UUID"); at != note.npos) note.replace(at, 4, uuid_);
      const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_RDWR, 0644);
      if (fd < 0 || flock(fd, LOCK_EX) != 0 || write(fd, note.data(), note.size()) < 0) _exit(1);
      const int device = open(lock_.c_str(), O_CREAT | O_RDONLY, 0644);
      if (device < 0 || flock(device, LOCK_EX) != 0) _exit(1);
    });
    const auto pid = std::to_string(bob.pid());
    const auto seen = Json::parse(run(machine_.yoke_as(kAda, {"claims", "--json"})).out).at("claims");
    ASSERT_THAT(seen, SizeIs(1)) << text;
    EXPECT_EQ(seen[0].at("user"), std::to_string(kBob)) << text;
    EXPECT_EQ(seen[0].at("pid"), bob.pid()) << text;
    EXPECT_EQ(run(machine_.yoke_as(kAda, {"release", "--force", pid})).exit_code, 77) << text;
    EXPECT_EQ(run(machine_.yoke({"release", pid})).exit_code, 69) << "it may be a program: " << text;
    const auto released = run(machine_.yoke({"release", "--force", pid}));
    EXPECT_EQ(released.exit_code, 0) << text << released.err;
    EXPECT_EQ(machine_.num_claimed(), 0) << text;
  }
}

TEST_F(ClaimAttack, ANoteThatNamesAnotherProcessOfItsUserIsEndedWithoutThatOne) {
  const Attacker other(kBob, [] {});
  const Attacker bob(kBob, [&] {
    const auto path = machine_.locks() + "/yoke-claim-" + std::to_string(kBob) + "-1-00";
    const Json note = {{"keys", {uuid_}},
                       {"pid", 1},
                       {"start_ticks", 0},
                       {"program_pid", other.pid()},
                       {"program_start_ticks", start_ticks_of(other.pid()).value_or(0)},
                       {"since", 1}};
    const auto text = note.dump();
    const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_RDWR, 0644);
    if (fd < 0 || flock(fd, LOCK_EX) != 0 || write(fd, text.data(), text.size()) < 0) _exit(1);
  });
  ASSERT_EQ(machine_.num_claimed(), 1);
  EXPECT_EQ(run(machine_.yoke({"release", "--force", std::to_string(other.pid())})).exit_code, 0);
  EXPECT_EQ(machine_.num_claimed(), 0);
  EXPECT_NE(start_ticks_of(other.pid()), std::nullopt);
  char state = 0;
  std::ifstream stat("/proc/" + std::to_string(other.pid()) + "/stat");
  while (stat >> state && state != ')') {
  }
  EXPECT_TRUE(stat >> state && state != 'Z') << "it got no signal";
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
  // Others than root do not see whether this process still has it.
  EXPECT_THAT(run(machine_.yoke_as(kAda, {"claims", "--json"})).out,
              HasSubstr("process " + std::to_string(bob.pid()) + " of uid " + std::to_string(kBob) + ", or by one"));
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
