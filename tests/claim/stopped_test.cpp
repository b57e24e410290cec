// Requests that are stopped at any moment, and users who keep the locks that all share, hold back nobody.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <random>

#include "tests/claim/attacker.h"
#include "tests/claim/machine.h"
#include "tests/support/sanitized.h"

namespace yoke::test {
namespace {

using testing::HasSubstr;

/// A request that is stopped at a random moment: while it starts, looks and takes, or soon after it has joined the
/// queue, when it looks often.
class StoppedRequest {
 public:
  StoppedRequest(const ClaimMachine& machine, std::mt19937& random, int signal, bool is_queued)
      : command_(options(machine)) {
    const unsigned longest_us = is_queued ? 10'000 : 50'000;
    if (is_queued && !command_.wait_until([&] { return !command_.err().empty(); })) return;
    usleep(random() % longest_us);  // clock: each moment is as good as any other
    command_.signal(signal);
    is_stopped_ = wait_until([&] { return state_of(command_.pid()) == 'T'; });
  }
  bool is_stopped() const { return is_stopped_; }
  /// Whether it gets its devices after all.
  bool goes_on() {
    command_.signal(SIGCONT);
    const bool has_started = command_.wait_for_output("started");
    end();
    return has_started;
  }
  void end() {
    command_.signal(SIGCONT);
    command_.signal(SIGTERM);
    command_.wait();
  }
  std::string err() const { return command_.err(); }

 private:
  static CommandOptions options(const ClaimMachine& machine) {
    auto result = machine.yoke(ClaimMachine::claim_and_wait({"-n", "2", "--wait", "60s"}));
    result.own_group = true;  // Ctrl-Z has no effect in a group that no shell watches
    return result;
  }

  Command command_;
  bool is_stopped_ = false;
};

/// Others get a free device while a request for two is stopped. `is_queued`: only one is free, so it waits.
void expect_that_nobody_is_held_back(bool is_queued) {
  const int num_rounds = kIsSanitized ? 25 : 100;  // some of the rounds take a second
  const ClaimMachine machine;
  std::optional<Command> holder;
  if (is_queued) {
    holder.emplace(machine.yoke(ClaimMachine::claim_and_wait({"-n", "7"})));
    ASSERT_TRUE(holder->wait_for_output("started"));
  }
  std::mt19937 random(1);
  for (int round = 0; round < num_rounds; ++round) {
    StoppedRequest stopped(machine, random, SIGSTOP, is_queued);
    ASSERT_TRUE(stopped.is_stopped()) << "round " << round;
    const auto words = std::vector<std::string>{"claim", "--", "true"};
    Command other(geteuid() == 0 ? machine.yoke_as(kBob, words) : machine.yoke(words));
    const auto result = other.wait(milliseconds(10'000));
    ASSERT_FALSE(result.timed_out) << "round " << round;
    ASSERT_EQ(result.exit_code, 0) << "round " << round << ": " << result.err;
    if (is_queued) {
      stopped.end();
    } else {
      ASSERT_TRUE(stopped.goes_on()) << "round " << round << ": " << stopped.err();
    }
  }
  EXPECT_EQ(machine.num_claimed(), is_queued ? 7 : 0);
  EXPECT_TRUE(machine.claims().at("queue").empty());
}

TEST(ClaimCommand, ARequestThatIsStoppedHoldsBackNobody) { expect_that_nobody_is_held_back(false); }

TEST(ClaimCommand, ARequestThatIsStoppedWhileItWaitsHoldsBackNobody) { expect_that_nobody_is_held_back(true); }

TEST(ClaimCommand, CtrlZIsDelayedUntilOthersDoNotWait) {
  const ClaimMachine machine;
  ASSERT_EQ(run(machine.yoke({"claim", "--", "true"})).exit_code, 0) << "makes the file";
  const UniqueFd lock(open((machine.locks() + "/yoke-alloc").c_str(), O_RDONLY | O_CLOEXEC));
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    StoppedRequest stopped(machine, random, SIGTSTP, false);
    ASSERT_TRUE(stopped.is_stopped()) << "round " << round;
    ASSERT_EQ(flock(lock.value(), LOCK_EX | LOCK_NB), 0) << "round " << round << ": it is stopped and holds the lock";
    flock(lock.value(), LOCK_UN);
    ASSERT_TRUE(stopped.goes_on()) << "round " << round << ": " << stopped.err();
  }
}

TEST(ClaimCommand, ARequestThatIsStoppedInTheQueueIsPassedBy) {
  const ClaimMachine machine;
  Command holder(machine.yoke(ClaimMachine::claim_and_wait({"-n", "8"})));
  ASSERT_TRUE(holder.wait_for_output("started"));
  Command stopped(machine.yoke(ClaimMachine::claim_and_wait({"--wait"})));
  ASSERT_TRUE(wait_until([&] { return machine.claims().at("queue").size() == 1; }));
  stopped.signal(SIGSTOP);
  ASSERT_TRUE(wait_until([&] { return machine.claims().at("queue")[0].at("is_stopped") == true; }));
  EXPECT_THAT(run(machine.yoke({"claims"})).out, HasSubstr("stopped"));
  holder.signal(SIGTERM);
  EXPECT_TRUE(wait_until([&] { return machine.num_claimed() == 0; }));
  EXPECT_EQ(run(machine.yoke({"claim", "-n", "8", "--wait", "20s", "--", "true"})).exit_code, 0);
  stopped.signal(SIGCONT);
  EXPECT_TRUE(stopped.wait_for_output("started"));
  stopped.signal(SIGTERM);
}

/// A process of bob's that holds locks of all users and never gives them back.
void hold(const ClaimMachine& machine, const std::vector<std::string>& names) {
  for (const auto& name : names) {
    const int fd = open((machine.locks() + "/" + name).c_str(), O_CREAT | O_RDONLY, 0644);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) _exit(1);
  }
}

TEST(ClaimUsers, AUserWhoKeepsTheLocksOfAllHoldsBackNobody) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
  const ClaimMachine machine;
  const Attacker bob(kBob, [&] { hold(machine, {"yoke-alloc", "yoke-alloc-2"}); });
  Command holder(machine.yoke_as(kAda, ClaimMachine::claim_and_wait({"-n", "8"})));
  ASSERT_TRUE(holder.wait_for_output("started")) << holder.err();
  EXPECT_EQ(machine.num_claimed(), 8);
  EXPECT_EQ(run(machine.yoke_as(kAda, {"claim", "--", "true"})).exit_code, 75);
  Command waiter(machine.yoke_as(kAda, ClaimMachine::claim_and_wait({"--wait"})));
  ASSERT_TRUE(waiter.wait_for_output("waiting: ")) << waiter.err();
  const auto pid = std::to_string(holder.pid());
  EXPECT_EQ(run(machine.yoke_as(kAda, {"release", "--force", pid})).exit_code, 0);
  EXPECT_TRUE(waiter.wait_for_output("started")) << waiter.err();
  const auto reserved = run(machine.yoke_as(kAda, {"reserve", "--start", "+1h", "--for", "1h"}));
  EXPECT_EQ(reserved.exit_code, 0) << reserved.err;
}

TEST(ClaimUsers, AFifoInPlaceOfTheSecondLockHoldsBackNobody) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
  const ClaimMachine machine;
  const Attacker bob(kBob, [&] {
    hold(machine, {"yoke-alloc"});
    if (mkfifo((machine.locks() + "/yoke-alloc-2").c_str(), 0666) != 0) _exit(1);
  });
  const auto result = run(machine.yoke_as(kAda, {"claim", "-n", "8", "--", "true"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

}  // namespace
}  // namespace yoke::test
