// Kills programs at random moments while their loaders make batches. No process, file or shared memory may remain.
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/command.h"
#include "yoke/base/file.h"
#include "yoke/train/data/loader.h"

namespace yoke::train {
namespace {

struct Numbered {
  int64_t size() const { return 10'000; }
  at::Tensor sample(int64_t i) const { return at::full({100}, i, at::kLong); }
};

/// Lists what `process` has open or mapped that could outlive it: shared memory, and files of `folder`.
std::vector<std::string> lasting_files(pid_t process, const std::string& folder) {
  std::vector<std::string> found;
  const auto add = [&](const std::string& path) {
    if (path.starts_with("/dev/shm") || path.starts_with("/memfd") || path.starts_with("/SYSV") ||
        path.starts_with(folder)) {
      found.push_back(path);
    }
  };
  const auto proc = std::filesystem::path("/proc") / std::to_string(process);
  for (const auto& fd : std::filesystem::directory_iterator(proc / "fd")) add(read_symlink(fd.path()).string());
  std::istringstream maps(read_file(proc / "maps"));
  for (std::string line; std::getline(maps, line);) {
    if (const auto path = line.find('/'); path != line.npos) add(line.substr(path));
  }
  return found;
}

TEST(LoaderKill, LeavesNoProcessFileOrSharedMemory) {
  const int num_kills = std::getenv("YOKE_LONG") != nullptr ? 1000 : 20;
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphaned children of a killed process become children of this process
  const test::TemporaryFolder folder;
  std::mt19937 random(1);
  for (int round = 0; round < num_kills; ++round) {
    auto begun = make_pipe();
    const pid_t child = fork();
    if (child == 0) {
      setenv("TMPDIR", folder.path().c_str(), 1);
      if (chdir(folder.path().c_str()) != 0) _exit(1);
      Loader loader(Numbered(), {.batch_size = 16, .num_workers = round % 4, .num_prefetch = 8});
      for (int64_t epoch = 0;; ++epoch) {
        for (const auto& batch : loader.epoch(epoch)) {
          if (batch.size(0) > 0 && write(begun.write_end.value(), "", 1) < 0) _exit(1);
        }
      }
    }
    begun.write_end.reset();
    char byte = 0;
    ASSERT_EQ(read(begun.read_end.value(), &byte, 1), 1);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));  // clock: any moment will do
    EXPECT_THAT(lasting_files(child, folder.path()), testing::IsEmpty());
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "it has left a process";
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

}  // namespace
}  // namespace yoke::train
