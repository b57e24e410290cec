#include "yoke/launch/process/store_users.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "yoke/base/process.h"

namespace yoke::launch {
namespace {

TEST(StoreUsers, SubordinateUidsAreThoseOfTheNames) {
  const std::string text =
      "# a comment\nada:100000:65536\neve:165536:65536\n1001:300000:10\nada:500000:1\nada:x:5\nada:7\n";
  const std::vector<std::string> ada = {"1001", "ada"};
  for (const uid_t uid : {100'000, 165'535, 300'000, 300'009, 500'000})
    EXPECT_TRUE(is_subordinate(uid, ada, text)) << uid;
  for (const uid_t uid : {0, 7, 99'999, 165'536, 300'010, 500'001}) EXPECT_FALSE(is_subordinate(uid, ada, text)) << uid;
  EXPECT_FALSE(is_subordinate(100'000, {}, text));
}

TEST(StoreUsers, HaveNames) {
  EXPECT_EQ(name_and_uid(0), "root (uid 0)");
  EXPECT_EQ(name_and_uid(4'111'222), "uid 4111222");
}

TEST(StoreUsers, OwnOneAndRootMay) {
  StoreUsers users(getpid());
  EXPECT_TRUE(users.may_use(geteuid()));
  EXPECT_TRUE(users.may_use(0));
  EXPECT_FALSE(users.may_use(4'111'222));
}

TEST(StoreUsers, ARankMayRunAsOneOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  auto ready = make_pipe();
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(4'111'223) != 0 || dup2(ready.write_end.value(), 1) != 1) _exit(1);
    execl("/bin/sh", "sh", "-c", "echo; exec sleep 1000", nullptr);
    _exit(1);
  }
  ready.write_end.reset();
  char byte = 0;
  EXPECT_EQ(read(ready.read_end.value(), &byte, 1), 1);
  EXPECT_FALSE(StoreUsers(getpid()).may_use(4'111'224));
  EXPECT_TRUE(StoreUsers(getpid()).may_use(4'111'223));
  EXPECT_FALSE(StoreUsers(child).may_use(4'111'223)) << "the child has no descendants";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace yoke::launch
