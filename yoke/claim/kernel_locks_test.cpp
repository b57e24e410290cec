#include "yoke/claim/kernel_locks.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "yoke/base/file.h"
#include "yoke/base/user_socket.h"

namespace yoke::claim {
namespace {

using testing::ElementsAre;

TEST(KernelLocks, OnlyFlocksThatAreHeld) {
  const auto locks = parse_locks(
      "1: FLOCK  ADVISORY  WRITE 4121 00:1a:98765 0 EOF\n"
      "1: -> FLOCK  ADVISORY  WRITE 4122 00:1a:98765 0 EOF\n"
      "2: POSIX  ADVISORY  READ 4123 08:01:5 128 128\n"
      "3: OFDLCK ADVISORY  WRITE -1 08:01:6 0 EOF\n"
      "lock:\t1: FLOCK  ADVISORY  READ 7 fd:00:18446744073709551615 0 EOF\n"
      "4: FLOCK  ADVISORY  WRITE x 00:1a:1 0 EOF\n"
      "5: FLOCK  ADVISORY  WRITE 1 nonsense 0 EOF\n"
      "6: FLOCK\n\n");
  EXPECT_THAT(locks, ElementsAre(KernelLock{"00:1a", 98765, 4121}, KernelLock{"fd:00", UINT64_MAX, 7, true}));
}

TEST(KernelLocks, Leases) {
  const auto* const text =
      "1: LEASE  ACTIVE    WRITE 4121 00:1a:98765 0 EOF\n"
      "2: LEASE  BREAKING  READ 4122 00:1a:98766 0 EOF\n"
      "3: FLOCK  ADVISORY  WRITE 4123 00:1a:98767 0 EOF\n";
  EXPECT_THAT(parse_locks(text, "LEASE"),
              ElementsAre(KernelLock{"00:1a", 98765, 4121}, KernelLock{"00:1a", 98766, 4122, true}));
}

TEST(KernelLocks, ShowsWhatThisProcessHolds) {
  const UniqueFd fd(open(testing::TempDir().c_str(), O_TMPFILE | O_RDWR, 0600));
  if (!fd) GTEST_SKIP() << "the folder of temporary files has no unnamed files";
  ASSERT_EQ(flock(fd.value(), LOCK_EX), 0);
  struct stat status {};
  ASSERT_EQ(fstat(fd.value(), &status), 0);
  const auto device = device_of_lock(fd.value());
  ASSERT_NE(device, "");
  EXPECT_THAT(read_locks(), testing::Contains(KernelLock{device, status.st_ino, getpid()}));
  EXPECT_EQ(has_open(getpid(), status.st_ino), true);
}

TEST(KernelLocks, FactsOfAProcess) {
  const auto facts = process_facts(getpid());
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->effective_uid, geteuid());
  EXPECT_EQ(facts->real_uid, getuid());
  EXPECT_EQ(facts->start_ticks, start_ticks_of(getpid()));
  EXPECT_FALSE(process_facts(0));
  EXPECT_FALSE(process_facts(-1));
}

}  // namespace
}  // namespace yoke::claim
