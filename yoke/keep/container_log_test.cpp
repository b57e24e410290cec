#include "yoke/keep/container_log.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include "tests/support/command.h"

namespace yoke::keep {
namespace {

TEST(ContainerLog, KeepsTheEndOfALongOutput) {
  const test::TemporaryFolder folder;
  auto pipe = make_pipe();
  ContainerLog log(std::move(pipe.read_end), {{"TMPDIR", folder.path()}}, 1000);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "the file has no name";
  std::string all;
  for (int i = 0; i < 40; ++i) {
    const auto line = std::to_string(i) + std::string(98, '.') + "\n";
    all += line;
    ASSERT_EQ(write(pipe.write_end.value(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
    log.copy();
    EXPECT_LE(std::filesystem::file_size("/proc/self/fd/" + std::to_string(log.file())), 1000U);
  }
  EXPECT_EQ(log.tail(450), all.substr(all.size() - 450));
  EXPECT_GE(log.source(), 0);
  pipe.write_end.reset();
  log.copy();
  EXPECT_EQ(log.source(), -1) << "the output has ended";
}

/// Stands for a full disk: files of this process may have so many bytes.
class FileLimit {
 public:
  explicit FileLimit(rlim_t most_bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{most_bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit before_ = {};
};

TEST(ContainerLog, KeepsTheEndOnAFullDisk) {
  const test::TemporaryFolder folder;
  auto pipe = make_pipe();
  ContainerLog log(std::move(pipe.read_end), {{"TMPDIR", folder.path()}}, 1 << 20);
  std::string all;
  {
    const FileLimit limit(10'000);
    for (int i = 0; i < 1000; ++i) {
      const auto line = "line " + std::to_string(i) + std::string(40, '.') + "\n";
      all += line;
      ASSERT_EQ(write(pipe.write_end.value(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
      log.copy();
    }
  }
  EXPECT_EQ(log.tail(4000), all.substr(all.size() - 4000));
  EXPECT_TRUE(log.tail(10'000).starts_with("[yoke] the disk was full, so older output is lost\n")) << log.tail(10'000);
}

}  // namespace
}  // namespace yoke::keep
