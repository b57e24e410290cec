#include "yoke/device/process/kill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/device/process/info.h"

namespace yoke::device {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr std::chrono::hours kLong{1};

/// A shell that runs `script`, which prints a byte when it is ready.
class KilledShell {
 public:
  explicit KilledShell(const std::string& script) {
    auto pipe = make_pipe();
    pid_ = spawn({.argv = {"sh", "-c", script}, .out = pipe.write_end.value(), .death_signal = SIGKILL});
    pipe.write_end.reset();
    char byte = 0;
    while (read(pipe.read_end.value(), &byte, 1) < 0) {
    }
  }
  KilledShell(const KilledShell&) = delete;
  KilledShell& operator=(const KilledShell&) = delete;
  ~KilledShell() {
    kill(pid_, SIGKILL);
    wait_for_child(pid_);
  }
  KillTarget target() const {
    return {.pid = pid_, .devices = {}, .process = {.pid = pid_, .info = describe_process(pid_)}, .refusal = {}};
  }

 private:
  pid_t pid_ = -1;
};

constexpr const char* kDeaf = "trap '' TERM; echo; while :; do sleep 0.01; done";

TEST(Kill, EndsAndWaits) {
  const KilledShell shell("echo; exec sleep 1000");
  auto victims = hold({shell.target()});
  ASSERT_EQ(victims.size(), 1U);
  EXPECT_TRUE(victims[0].is_open());
  std::vector<int64_t> told;
  end(victims,
      {.signal = SIGTERM, .wait = kLong, .on_wait = [&](const KillWait& wait) { told.push_back(wait.num_left); }});
  EXPECT_EQ(victims[0].result, "ended");
  EXPECT_EQ(told.back(), 0);
}

TEST(Kill, KillsWhatDoesNotEndInTimeIfItIsForced) {
  const KilledShell shell(kDeaf);
  auto victims = hold({shell.target()});
  end(victims, {.signal = SIGTERM, .wait = milliseconds(1)});
  EXPECT_EQ(victims[0].result, "survived");
  EXPECT_EQ(victims[0].target.refusal->code, ErrorCode::kTimeout);
  EXPECT_THAT(victims[0].target.refusal->reason, HasSubstr("after SIGTERM; --force sends SIGKILL then"));
  auto again = hold({shell.target()});
  end(again, {.signal = SIGKILL, .wait = kLong});
  EXPECT_EQ(again[0].result, "ended");
}

TEST(Kill, ASignalThatEndsNothingIsNotWaitedFor) {
  const KilledShell shell("trap : USR1; echo; while :; do sleep 0.01; done");
  auto victims = hold({shell.target()});
  end(victims, {.signal = SIGUSR1, .wait = kLong});
  EXPECT_EQ(victims[0].result, "signaled");
  EXPECT_FALSE(victims[0].is_open());
}

TEST(Kill, AProcessThatIsGoneOrAnothersIsNotSignalled) {
  auto gone = KilledShell("echo; exec sleep 1000").target();
  auto other = gone;
  other.refusal = {ErrorCode::kPermissionDenied, "belongs to bob"};
  auto victims = hold({gone, other});
  EXPECT_EQ(victims[0].result, "ended") << "a later process of this number is another one";
  EXPECT_FALSE(victims[1].is_open());
  end(victims, {.signal = SIGKILL, .wait = kLong});
  EXPECT_EQ(victims[1].result, "refused");
  if (geteuid() == 0) return;
  KillTarget init{.pid = 1, .devices = {}, .process = {.pid = 1, .info = describe_process(1)}, .refusal = {}};
  EXPECT_EQ(hold({init})[0].target.refusal->code, ErrorCode::kPermissionDenied);
}

TEST(Kill, TheAskerKnowsItsAncestors) {
  const auto asker = kill_asker();
  EXPECT_EQ(asker.pid, getpid());
  EXPECT_TRUE(asker.ancestors.contains(getppid()));
}

}  // namespace
}  // namespace yoke::device
