#include "yoke/storage/remote.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <utility>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/file.h"
#include "yoke/base/user_socket.h"
#include "yoke/storage/detail/sshfs_process.h"

namespace yoke::storage {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using yoke::test::message_of;

constexpr Seconds kLong{60};

RemoteMount mount_at(const std::string& point, int64_t id = 0) {
  return {.mount = {.id = id, .point = point, .type = "fuse.sshfs"}, .uid = geteuid()};
}

/// A child that waits until it is killed. Its working folder is `folder`, and its name is `name`.
class Waiting {
 public:
  explicit Waiting(const std::string& folder, const char* name = "waiting", bool leads_session = false) {
    auto ready = make_pipe();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      prctl(PR_SET_NAME, name);
      if (chdir(folder.c_str()) != 0 || (leads_session && setsid() < 0)) _exit(1);
      if (write(ready.write_end.value(), "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    ready.write_end.reset();
    char byte = 0;
    EXPECT_EQ(read(ready.read_end.value(), &byte, 1), 1);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() {
    if (pid_ > 0) signal_of_end(SIGKILL);
  }
  pid_t pid() const { return pid_; }
  /// Sends `signal`, and returns the one that has ended it: SIGKILL if that was sent before.
  int signal_of_end(int signal) {
    kill(pid_, signal);
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

 private:
  pid_t pid_;
};

TEST(RemoteMounts, AnAnswerIsAnyThatTheServerGives) {
  const test::TemporaryFolder folder;
  folder.write("file", "");
  const auto conditions =
      check({mount_at(folder.path()), mount_at(folder.path("gone")), mount_at(folder.path("file"))}, Deadline(kLong));
  ASSERT_EQ(conditions.size(), 3u);
  EXPECT_EQ(conditions[0].state, MountState::kAlive);
  EXPECT_TRUE(conditions[0].latency);
  EXPECT_EQ(conditions[1].state, MountState::kAlive) << "that there is no such file is an answer";
  EXPECT_EQ(conditions[2].state, MountState::kDead);
  EXPECT_EQ(conditions[2].reason, "Not a directory: sshfs cannot reach the server now");
  EXPECT_FALSE(conditions[2].latency);
}

TEST(RemoteMounts, TheLastOneOnAFolderIsMeantAlsoByALink) {
  const test::TemporaryFolder folder;
  folder.write("mnt/.keep", "");
  std::filesystem::create_directory_symlink("mnt", folder.path("link"));
  const std::vector<RemoteMount> mounts = {mount_at(folder.path("mnt/a"), 1), mount_at(folder.path("mnt/a"), 2),
                                           mount_at(folder.path("mnt/b"), 3)};
  const auto id_at = [&](const std::string& word) -> int64_t {
    const auto found = find_by_point(mounts, word, Deadline(kLong));
    return found ? found->mount.id : -1;
  };
  EXPECT_EQ(id_at(folder.path("mnt/a")), 2);
  EXPECT_EQ(id_at(folder.path("mnt/./x/../b//")), 3);
  EXPECT_EQ(id_at(folder.path("link/b")), 3) << "the folder above is a link";
  EXPECT_EQ(id_at(folder.path("mnt/c")), -1);
  EXPECT_EQ(id_at(folder.path("gone/a")), -1);
}

TEST(RemoteMounts, WhoeverUsesOneIsNamedBeforeItEnds) {
  const test::TemporaryFolder folder;
  folder.write("m/file", "");
  folder.write("m2/file", "");
  const auto unmount = [&] {
    return message_of([&] { unmount_remote(mount_at(folder.path("m")), false, Deadline(kLong)); },
                      ErrorCode::kFailedPrecondition);
  };
  const Waiting neighbour(folder.path("m2"), "neighbour");  // its folder begins with the same letters
  EXPECT_TRUE(users_of(folder.path("m")).empty());
  const Waiting worker(folder.path("m"), "a\x1b[2J");
  EXPECT_EQ(users_of(folder.path("m")).at(0).pid, worker.pid());
  EXPECT_THAT(
      unmount(),
      AllOf(StartsWith(folder.path("m") + " is in use by "),
            HasSubstr(fmt::format(" (pid {}); end them, or use --force, after which they keep it", worker.pid())),
            testing::Not(HasSubstr("\x1b"))));
  const UniqueFd file(open(folder.path("m/file").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(unmount(), HasSubstr(fmt::format("(pid {})", getpid()))) << "an open file is use, too";
  const Waiting more[5] = {Waiting(folder.path("m")), Waiting(folder.path("m")), Waiting(folder.path("m")),
                           Waiting(folder.path("m")), Waiting(folder.path("m"))};
  EXPECT_THAT(unmount(), HasSubstr("), 2 more; end them")) << "seven use it, and five are named";
}

TEST(RemoteMounts, OnlyTheSshfsThatWasFoundIsKilled) {
  const test::TemporaryFolder folder;
  Waiting sshfs(folder.path(), "sshfs", true), later(folder.path(), "sshfs", true), stranger(folder.path(), "ssh");
  kill_sshfs({.pid = sshfs.pid(), .start_ticks = start_ticks_of(sshfs.pid()).value()});
  kill_sshfs({.pid = later.pid(), .start_ticks = start_ticks_of(later.pid()).value() + 1});
  const auto pid = sshfs.pid();
  EXPECT_EQ(sshfs.signal_of_end(SIGTERM), SIGKILL);
  EXPECT_EQ(later.signal_of_end(SIGTERM), SIGTERM) << "another process had its number before";
  EXPECT_EQ(stranger.signal_of_end(SIGTERM), SIGTERM) << "an ssh of another session";
  EXPECT_TRUE(argv_of(pid).empty()) << "it has ended";
}

TEST(RemoteMounts, WhatIsMissingIsNamedBeforeAnythingIsMade) {
  const test::TemporaryFolder folder;
  const MountRequest request{.remote = {"server", "/data"}};
  EXPECT_EQ(message_of(
                [&] {
                  mount_remote(request, {{"PATH", folder.path()}}, Deadline(kLong));
                },
                ErrorCode::kFailedPrecondition),
            "HOME is not set to a folder, so give the folder to mount on");
  EXPECT_THAT(message_of(
                  [&] {
                    mount_remote(request, {{"PATH", folder.path()}, {"HOME", folder.path()}}, Deadline(kLong));
                  },
                  ErrorCode::kFailedPrecondition),
              StartsWith("there is no program sshfs here"));
  EXPECT_FALSE(std::filesystem::exists(folder.path("mnt")));
}

}  // namespace
}  // namespace yoke::storage
