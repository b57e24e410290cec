#include "yoke/base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/base/process.h"

namespace yoke {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string pattern = (fs::temp_directory_path() / "yoke_file_test.XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~FileTest() override { fs::remove_all(folder_); }

  size_t num_files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(FileTest, ReplaceWritesAWholeReadableFile) {
  const auto path = folder_ / "a";
  replace_file(path, [](int fd) { write_all(fd, "one", "a"); });
  replace_file(path, "two");
  EXPECT_EQ(read_file(path), "two");
  EXPECT_EQ(num_files(), 1u);
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_NE(status.st_mode & S_IRGRP, 0u) << "as readable as umask allows, not mkstemp's 0600";
  replace_file(path, "secret", 0600);
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(FileTest, AFailedReplaceKeepsTheOldFileAndLeavesNothing) {
  const auto path = folder_ / "a";
  replace_file(path, [](int fd) { write_all(fd, bytes_of("old"), "a"); });
  EXPECT_THROW(replace_file(path,
                            [](int fd) {
                              write_all(fd, bytes_of("ne"), "a");
                              throw std::runtime_error("half-way");
                            }),
               std::runtime_error);
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(FileTest, AFullDiskIsNamed) {
  EXPECT_THAT(test::message_of([&] { replace_file(folder_ / "absent" / "a", [](int) {}); }, ErrorCode::kNotFound),
              testing::HasSubstr("absent/a: No such file or directory"));
  const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(test::message_of([&] { write_all(full.value(), bytes_of("x"), "/dev/full"); }, ErrorCode::kUnavailable),
            "writing /dev/full: No space left on device");
}

TEST_F(FileTest, MapsWhatItReads) {
  const auto path = folder_ / "a";
  const std::string text(100'000, 'x');
  replace_file(path, [&](int fd) { write_all(fd, bytes_of(text), "a"); });
  const MappedFile mapped(path);
  ASSERT_EQ(mapped.bytes().size(), text.size());
  EXPECT_EQ(std::memcmp(mapped.bytes().data(), text.data(), text.size()), 0);
  replace_file(path, [](int) {});
  EXPECT_TRUE(MappedFile(path).bytes().empty());
  EXPECT_THROW(MappedFile(folder_ / "absent"), Error);
  EXPECT_THROW(MappedFile{folder_}, Error);
  ASSERT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  EXPECT_THROW(MappedFile(folder_ / "fifo"), Error) << "and does not wait for a writer";
}

TEST_F(FileTest, DescriptorsMoveAndClose) {
  auto pipe = make_pipe();
  const int number = pipe.read_end.value();
  UniqueFd moved = std::move(pipe.read_end);
  EXPECT_FALSE(pipe.read_end);
  EXPECT_EQ(moved.value(), number);
  moved.reset();
  EXPECT_EQ(fcntl(number, F_GETFD), -1);
}

/// Sends 40 messages with one descriptor each, and returns how many were sent. The kernel limits the unreceived
/// descriptors of an unprivileged user to about RLIMIT_NOFILE, here 30. To reach this limit, the function drops its
/// privileges, and the receiver starts only after 30 messages were sent.
int send_more_than_may_be_on_their_way() {
  if (geteuid() == 0 && setresuid(4321, 4321, 4321) != 0) return -1;
  constexpr int kMayBeOnTheirWay = 30, kMessages = 40;
  const rlimit limit{kMayBeOnTheirWay, kMayBeOnTheirWay};
  setrlimit(RLIMIT_NOFILE, &limit);
  const auto [near, far] = make_socket_pair();
  const std::array fds = {near.value()};
  std::byte byte{};
  std::atomic<int> count = 0;
  std::thread receiver([&, &far = far] {
    while (count < kMayBeOnTheirWay) std::this_thread::yield();
    std::byte received{};
    std::vector<UniqueFd> taken;
    for (int i = 0; i < kMessages && receive_with_fds(far.value(), std::span(&received, 1), taken) > 0; ++i)
      taken.clear();
  });
  while (count < kMessages && send_with_fds(near.value(), std::span(&byte, 1), fds)) ++count;
  shutdown(near.value(), SHUT_WR);
  receiver.join();
  return count;
}

TEST(SendDescriptors, WhatAProcessHasSentArrivesThoughItEndedWithoutReadingAll) {
  auto [near, far] = make_socket_pair();
  const std::byte sent{7};
  ASSERT_TRUE(send_with_fds(far.value(), std::span(&sent, 1), {}));
  ASSERT_TRUE(send_with_fds(near.value(), std::span(&sent, 1), {}));
  far.reset();
  std::byte received{};
  std::vector<UniqueFd> fds;
  EXPECT_EQ(receive_with_fds(near.value(), std::span(&received, 1), fds), 1);
  EXPECT_EQ(received, sent);
  EXPECT_EQ(receive_with_fds(near.value(), std::span(&received, 1), fds), 0);
}

TEST(SendDescriptors, WaitsWhileTooManyAreOnTheirWay) {
  const pid_t child = fork();  // the child drops its privileges
  ASSERT_GE(child, 0);
  if (child == 0) _exit(send_more_than_may_be_on_their_way());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 40);
}

}  // namespace
}  // namespace yoke
