#include "yoke/cli/frame/container_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/command.h"

namespace yoke::cli {
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

}  // namespace
}  // namespace yoke::cli
