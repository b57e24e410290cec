#include "yoke/base/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace yoke {
namespace {

namespace fs = std::filesystem;

class FindProgram : public testing::Test {
 protected:
  FindProgram() {
    auto name = (fs::temp_directory_path() / "yoke-find-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    for (const auto* path : {"a/tool/file", "b/tool", "c/tool"}) {
      fs::create_directories((folder_ / path).parent_path());
      std::ofstream(folder_ / path) << "#!/bin/sh\n";
    }
    fs::permissions(folder_ / "c/tool", fs::perms{0755});
    fs::current_path(folder_);
  }
  ~FindProgram() override {
    fs::current_path(before_);
    fs::remove_all(folder_);
  }

  const fs::path before_ = fs::current_path();
  fs::path folder_;
};

/// Returns the path that execvp() finds for `name` and `path`. The script there prints its $0.
std::string run_by_execvp(const std::string& name, const std::string& path) {
  auto out = make_pipe();
  const pid_t child = fork();
  if (child == 0) {
    setenv("PATH", path.c_str(), 1);
    dup2(out.write_end.value(), STDOUT_FILENO);
    execlp(name.c_str(), name.c_str(), nullptr);
    _exit(1);
  }
  out.write_end.reset();
  char text[4096];
  const auto count = read(out.read_end.value(), text, sizeof text);
  waitpid(child, nullptr, 0);
  return count > 0 ? std::string(text, static_cast<size_t>(count)) : "none";
}

TEST_F(FindProgram, FindsWhatExecvpRuns) {
  std::ofstream(folder_ / "c/tool") << "#!/bin/sh\nprintf %s \"$0\"\n";
  fs::copy_file(folder_ / "c/tool", folder_ / "here");
  const auto absolute = (folder_ / "c").string();
  for (const auto& path :
       {absolute, "/nonexistent:" + absolute, std::string("a:b:c"), std::string(""), std::string(":a"),
        std::string("a:"), std::string("a::b"), std::string("a:b"), std::string(".")}) {
    for (const auto* name : {"tool", "here", "no-such-tool"}) {
      const auto found = find_program(name, {{"PATH", path}});
      const auto run = run_by_execvp(name, path);
      EXPECT_EQ(found.has_value(), run != "none") << name << " in PATH=" << path;
      if (found) {
        EXPECT_TRUE(fs::equivalent(*found, run)) << *found << " " << run;
      }
    }
  }
}

TEST_F(FindProgram, ToolsAreNotTakenFromTheWorkingFolder) {
  const auto absolute = (folder_ / "c").string();
  EXPECT_EQ(find_tool("tool", {{"PATH", "c:" + absolute}}), absolute + "/tool");
  fs::copy_file(folder_ / "c/tool", folder_ / "here");
  for (const auto* path : {"", ".", "c", ":", "/nonexistent:"}) {
    EXPECT_FALSE(find_tool("tool", {{"PATH", path}})) << path;
    EXPECT_FALSE(find_tool("here", {{"PATH", path}})) << path;
  }
}

TEST_F(FindProgram, ANameWithASlashIsAPath) {
  EXPECT_EQ(find_program("./b/tool", {}), "./b/tool");
  EXPECT_EQ(find_program("/no/such/tool", {}), "/no/such/tool");
}

TEST_F(FindProgram, WithoutPathItIsTheSystems) {
  EXPECT_EQ(find_program("sh", {}), "/bin/sh");
  EXPECT_FALSE(find_program("tool", {}));
  EXPECT_FALSE(find_program("", {{"PATH", folder_.string()}}));
}

// ---- spawn ----------------------------------------------------------------------------------------------------------

struct Spawned {
  std::string out;
  int status = -1;  ///< The exit status as a shell reports it.
};

Spawned run(SpawnOptions options) {
  auto out = make_pipe();
  options.out = out.write_end.value();
  const pid_t pid = spawn(options);
  EXPECT_GT(pid, 0);
  out.write_end.reset();
  Spawned result;
  char buffer[4096];
  for (ssize_t count; (count = read(out.read_end.value(), buffer, sizeof buffer)) > 0;) {
    result.out.append(buffer, static_cast<size_t>(count));
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

TEST(Spawn, GivesTheProgramWhatItIsToldAndNoShellReadsTheWords) {
  const auto result = run({.argv = {"sh", "-c", "printf '%s|' \"$@\" \"$A\" \"$HOME\"; cat", "sh", "a b", "$(id)", "*"},
                           .environment = std::vector<std::string>{"A=1"},
                           .in = kNullStream});
  EXPECT_EQ(result.out, "a b|$(id)|*|1||");
  EXPECT_EQ(result.status, 0);
}

TEST(Spawn, NothingElseIsInherited) {
  const UniqueFd kept(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 200)), other(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 200));
  const auto open_fds = [&](std::vector<int> inherited) {
    return run({.argv = {"sh", "-c", "for fd in /proc/$$/fd/*; do echo ${fd##*/}; done"},
                .in = kNullStream,
                .inherited_fds = std::move(inherited)})
        .out;
  };
  const auto has = [](const std::string& fds, const UniqueFd& fd) {
    return fds.find("\n" + std::to_string(fd.value()) + "\n") != std::string::npos;
  };
  const auto none = open_fds({}), one = open_fds({kept.value()});
  EXPECT_FALSE(has(none, kept) || has(none, other)) << none;
  EXPECT_TRUE(has(one, kept) && !has(one, other)) << one;
  EXPECT_EQ(fcntl(kept.value(), F_GETFD), FD_CLOEXEC) << "nothing changes in the caller";
}

TEST(Spawn, PutsTheProgramWhereItIsToldTo) {
  // proc(5): pid (comm) state ppid pgrp session
  const std::vector<std::string> show = {"sh", "-c", "set -- $(cat /proc/$$/stat); echo $(($1 == $5)) $(($1 == $6))"};
  EXPECT_EQ(run({.argv = show}).out, "0 0\n");
  EXPECT_EQ(run({.argv = show, .process_group = 0}).out, "1 0\n");
  EXPECT_EQ(run({.argv = show, .new_session = true}).out, "1 1\n");
}

TEST(Spawn, SetsTheMaskOfSignals) {
  const std::vector<std::string> show = {"sh", "-c",
                                         "while read a b; do [ $a != SigBlk: ] || echo $b; done </proc/$$/status"};
  EXPECT_EQ(run({.argv = show, .blocked_signals = BlockedSignals::kNone}).out, "0000000000000000\n");
  EXPECT_EQ(run({.argv = show, .blocked_signals = BlockedSignals::kAll}).out, "fffffffe7ffbfeff\n");
}

TEST(Spawn, NoHandlerOfTheCallerRunsInTheChild) {
  const auto before =
      std::signal(SIGUSR1, [](int) { [[maybe_unused]] const auto count = write(STDOUT_FILENO, "!", 1); });
  const auto result = run({.argv = {"echo", "it went on"}, .before_exec = [] { raise(SIGUSR1); }});
  std::signal(SIGUSR1, before);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.status, 128 + SIGUSR1);
}

TEST(Spawn, SaysWhyExecFailed) {
  auto why = make_pipe();
  const auto tell = [&](int error) {
    [[maybe_unused]] const auto count = write(why.write_end.value(), &error, sizeof error);
  };
  for (const auto& [program, status, error] :
       {std::tuple{"no-such-program", 127, ENOENT}, {"/", 126, EACCES}, {"/etc/passwd", 126, EACCES}}) {
    EXPECT_EQ(run({.argv = {program}, .exec_failed = tell}).status, status) << program;
    int told = 0;
    ASSERT_EQ(read(why.read_end.value(), &told, sizeof told), static_cast<ssize_t>(sizeof told));
    EXPECT_EQ(told, error) << program;
  }
}

TEST(Spawn, TheDeathSignalIsThatOfTheParentsEnd) {
  auto told = make_pipe(), alive = make_pipe();
  const pid_t parent = fork();
  if (parent == 0) {
    const pid_t child = spawn({.argv = {"sleep", "1000"}, .out = alive.write_end.value(), .death_signal = SIGKILL});
    [[maybe_unused]] const auto count = write(told.write_end.value(), &child, sizeof child);
    pause();
  }
  pid_t child = 0;
  ASSERT_EQ(read(told.read_end.value(), &child, sizeof child), static_cast<ssize_t>(sizeof child));
  alive.write_end.reset();
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  char byte = 0;
  EXPECT_EQ(read(alive.read_end.value(), &byte, 1), 0) << "the last that could write has ended";
}

/// From now on, this process has no system call `number`, as on an older kernel.
bool lose_system_call(unsigned number) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// Runs close_all_except({first + 10, first + 300}) in a child with descriptors from `first` to first + 400. Returns
/// those that it has afterwards, relative to `first`.
std::string kept_of_many(bool has_close_range) {
  auto out = make_pipe();
  const pid_t child = fork();
  if (child == 0) {
    constexpr int kFirst = 500;
    for (int fd = kFirst; fd <= kFirst + 400; ++fd) dup2(STDERR_FILENO, fd);
    if (!has_close_range && !lose_system_call(SYS_close_range)) _exit(1);
    close_all_except({kFirst + 300, out.write_end.value(), kFirst + 10});
    for (int fd = kFirst; fd <= kFirst + 400; ++fd)
      if (fcntl(fd, F_GETFD) >= 0) dprintf(out.write_end.value(), "%d ", fd - kFirst);
    close_from(kFirst + 11);
    if (fcntl(kFirst + 10, F_GETFD) < 0 || fcntl(kFirst + 300, F_GETFD) >= 0) _exit(2);
    _exit(0);
  }
  out.write_end.reset();
  std::string text;
  char buffer[1024];
  for (ssize_t count = 0; (count = read(out.read_end.value(), buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(count));
  return text + "status " + std::to_string(wait_for_child(child));
}

TEST(CloseAllExcept, ClosesTheSameOnKernelsWithoutCloseRange) {
  EXPECT_EQ(kept_of_many(true), "10 300 status 0");
  EXPECT_EQ(kept_of_many(false), "10 300 status 0");
}

}  // namespace
}  // namespace yoke
