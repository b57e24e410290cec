// Interrupts saves: by SIGKILL at each of their system calls and at random moments, by a full disk, and by concurrent
// saves. The children are made by fork, so they call no tensor operation that could start libtorch's threads.
#include <ATen/ops/full.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/train/checkpoint/checkpoint_folder.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int64_t kNumValues = 20'000;  // several pages (80 kB), but too few values for libtorch to use threads

/// A training's state after the step `value`.
struct Values {
  at::Tensor a, b;
  explicit Values(int64_t value) : a(at::full({kNumValues}, value, at::kFloat)), b(at::full({3}, value, at::kLong)) {}
  TrainState state(dist::World& world) {
    TrainState state(world);
    state.add("a", a).add("b", b);
    return state;
  }
};

void save_values(CheckpointFolder& folder, int64_t step, int64_t value) {
  fakes::run_ranks(1, [&](dist::World& world) { folder.save(step, Values(value).state(world)); });
}

/// Returns the step of the newest checkpoint, and expects that it holds the values of that step.
int64_t load_values(const CheckpointFolder& folder) {
  int64_t step = -1;
  fakes::run_ranks(1, [&](dist::World& world) {
    Values training(-1);
    auto state = training.state(world);
    const auto loaded = folder.load_latest(state);
    ASSERT_TRUE(loaded);
    step = loaded->step;
    EXPECT_TRUE(training.a.equal(at::full({kNumValues}, step, at::kFloat)));
    EXPECT_TRUE(training.b.equal(at::full({3}, step, at::kLong)));
  });
  return step;
}

void fail_on_warning(const std::string& message) { ADD_FAILURE() << message; }

/// Runs `body` in a child process, whose exit status is 0, or 1 if `body` throws.
pid_t start(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  try {
    body();
  } catch (...) {
    _exit(1);
  }
  _exit(0);
}

class CheckpointCrashTest : public testing::Test {
 protected:
  int64_t num_temporaries() const {
    int64_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) count += entry.path().extension() == ".tmp";
    return count;
  }

  /// Sets the age of all temporary files to one hour. Killed saves left these files.
  void age_temporaries() const {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() == ".tmp") {
        fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - std::chrono::hours(1));
      }
    }
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

// The state on disk changes only at system calls, so kills at these moments cover all states.
TEST_F(CheckpointCrashTest, SigkillAtEverySystemCall) {
  CheckpointFolder folder(folder_, {.keep = 1, .warn = fail_on_warning});
  int64_t num_stops = 0, num_old = 0, num_new = 0, most_temporaries = 0;
  for (int64_t kill_at = 0; kill_at <= num_stops; ++kill_at) {
    fs::remove(folder.path_of(2));
    if (!fs::exists(folder.path_of(1))) save_values(folder, 1, 1);
    const pid_t child = start([&] {
      dist::World world;  // one rank on this thread, since only this thread is traced
      Values training(2);
      const auto state = training.state(world);
      if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
      raise(SIGSTOP);
      folder.save(2, state);
      _exit(0);
    });
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "ptrace is not allowed here";
    for (num_stops = 0; WIFSTOPPED(status); ++num_stops) {  // the child stops before and after each system call
      if (num_stops == kill_at) {
        kill(child, SIGKILL);
      } else {
        ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
      }
      waitpid(child, &status, 0);
    }
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
    }

    const auto step = load_values(folder);
    ASSERT_FALSE(HasFailure()) << "killed at stop " << kill_at;
    ++(step == 1 ? num_old : num_new);
    most_temporaries = std::max(most_temporaries, num_temporaries());
    if (WIFEXITED(status)) break;  // the child exited by itself: every system call has been tried
  }
  EXPECT_GT(num_old, 10);
  EXPECT_GT(num_new, 4);
  EXPECT_GT(most_temporaries, 0) << "no save was cut in the middle";
  age_temporaries();
  save_values(folder, 3, 3);
  EXPECT_EQ(num_temporaries(), 0);
}

/// Kills `num_rounds` writers at random moments. `write_steps` saves ascending steps, beginning with the given one, and
/// reports each step that is safely on disk.
using Tell = std::function<void(int64_t step)>;
void kill_writers(CheckpointFolder& folder, int num_rounds,
                  const std::function<void(int64_t first, const Tell& tell)>& write_steps) {
  save_values(folder, 0, 0);
  std::mt19937 random(1);
  int64_t least = 0;
  for (int round = 0; round < num_rounds; ++round) {
    auto saved = make_pipe();
    const pid_t child = start([&] {
      write_steps(least + 1, [&](int64_t step) {
        [[maybe_unused]] const auto count = write(saved.write_end.value(), &step, sizeof step);
      });
    });
    saved.write_end.reset();
    // Waits for the first save. The random time after it is enough for a few more saves.
    int64_t step = 0;
    ASSERT_EQ(read(saved.read_end.value(), &step, sizeof step), static_cast<ssize_t>(sizeof step));
    const auto moment = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 10'000);
    while (std::chrono::steady_clock::now() < moment) sched_yield();
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    while (read(saved.read_end.value(), &step, sizeof step) > 0) {
    }

    least = load_values(folder);
    ASSERT_GE(least, step) << "a save that had returned is gone";
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

int num_kills(int in_short) { return std::getenv("YOKE_LONG") != nullptr ? 1000 : in_short; }

TEST_F(CheckpointCrashTest, SigkillAtAnyMoment) {
  CheckpointFolder folder(folder_, {.warn = fail_on_warning});
  kill_writers(folder, num_kills(20), [&](int64_t first, const Tell& tell) {
    fakes::run_ranks(1, [&](dist::World& world) {
      for (int64_t step = first;; ++step) {
        folder.save(step, Values(step).state(world));
        tell(step);
      }
    });
  });
  age_temporaries();
  const auto last = folder.steps().back();
  save_values(folder, last + 1, last + 1);
  EXPECT_EQ(num_temporaries(), 0);
}

// The training thread changes the tensors while their copy is written.
TEST_F(CheckpointCrashTest, SigkillAtAnyMomentOfAnAsynchronousSave) {
  CheckpointFolder folder(folder_, {.keep = 1, .warn = fail_on_warning});
  kill_writers(folder, num_kills(30), [&](int64_t first, const Tell& tell) {
    fakes::run_ranks(1, [&](dist::World& world) {
      Values training(first);
      const auto state = training.state(world);
      for (int64_t step = first;; ++step) {
        training.a.fill_(step);
        training.b.fill_(step);
        folder.save_async(step, state);  // when it returns, the previous step is on disk
        if (step > first) tell(step - 1);
      }
    });
  });
  age_temporaries();
  const auto last = folder.steps().back();
  save_values(folder, last + 1, last + 1);
  EXPECT_EQ(num_temporaries(), 0);
}

TEST_F(CheckpointCrashTest, TwoWritersHarmNobody) {
  CheckpointFolder folder(folder_, {.keep = 3, .warn = fail_on_warning});
  const auto writer = [&](int64_t first) {
    return start([&] {
      for (int64_t step = first; step < first + 60; ++step) save_values(folder, step / 2, step / 2);
    });
  };
  save_values(folder, 0, 0);
  const pid_t writers[] = {writer(2), writer(3)};
  int num_running = 2;
  int64_t num_loads = 0;
  while (num_running > 0) {
    load_values(folder);
    ASSERT_FALSE(HasFailure());
    ++num_loads;
    for (const pid_t pid : writers) {
      int status = 0;
      if (waitpid(pid, &status, WNOHANG) == pid) {
        EXPECT_EQ(status, 0) << "a writer failed";
        --num_running;
      }
    }
  }
  EXPECT_GT(num_loads, 1);
  EXPECT_EQ(num_temporaries(), 0);
}

void expect_full(CheckpointFolder& folder, const std::string& reason) {
  try {
    save_values(folder, 2, 2);
    ADD_FAILURE() << "the disk is not full";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    const auto needed = " is free there; checkpoint-000000000001.safetensors is as it was";
    EXPECT_THAT(error.what(), HasSubstr("writing " + folder.path_of(2).string() + ": " + reason + "; it needs 7"));
    EXPECT_THAT(error.what(), HasSubstr(needed));
  }
  EXPECT_EQ(folder.steps(), std::vector<int64_t>{1});
  EXPECT_EQ(load_values(folder), 1);
}

TEST_F(CheckpointCrashTest, AFileSizeLimitKeepsThePreviousOne) {
  CheckpointFolder folder(folder_, {.warn = fail_on_warning});
  save_values(folder, 1, 1);
  struct rlimit limit {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { .rlim_cur = 50'000, .rlim_max = limit.rlim_max };
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_full(folder, "File too large");
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(num_temporaries(), 0);
  save_values(folder, 2, 2);
}

void put(const char* path, const std::string& text) {
  const UniqueFd fd(open(path, O_WRONLY | O_CLOEXEC));
  write_all(fd.value(), std::as_bytes(std::span(text)), path);
}

/// Enters a new mount namespace. A user who is not root also enters a user namespace in which this process is root.
bool enter_mount_namespace() {
  const auto uid = getuid();
  const auto gid = getgid();
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    put("/proc/self/setgroups", "deny");
    put("/proc/self/uid_map", fmt::format("0 {} 1", uid));
    put("/proc/self/gid_map", fmt::format("0 {} 1", gid));
  }
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

TEST_F(CheckpointCrashTest, AFullDiskKeepsThePreviousOne) {
  // The file system has room for one and a half checkpoints. Its mount namespace ends with the child.
  constexpr int kNoMount = 77;
  const pid_t child = fork();
  if (child == 0) {
    try {
      if (!enter_mount_namespace() || mount("yoke", folder_.c_str(), "tmpfs", 0, "size=128k") != 0) _exit(kNoMount);
    } catch (const Error&) {
      _exit(kNoMount);
    }
    CheckpointFolder folder(folder_, {.warn = fail_on_warning});
    save_values(folder, 1, 1);
    expect_full(folder, "No space left on device");
    EXPECT_EQ(num_temporaries(), 0);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoMount) GTEST_SKIP() << "may not mount a file system here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace yoke::train
