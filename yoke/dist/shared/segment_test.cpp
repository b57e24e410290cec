#include "yoke/dist/shared/segment.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/process.h"

namespace yoke::dist::shared {
namespace {

const Layout kSmall{
    .num_ranks = 3, .slot_bytes = 100, .num_slots = 4, .chunk_bytes = 1024, .num_chunks = 2, .channel_bytes = 128};

TEST(SharedSegment, IsTheSameMemoryInBothMappings) {
  UniqueFd file;
  const auto made = Segment::create(kSmall, file), mapped = Segment::map(file);
  EXPECT_EQ(mapped->layout(), kSmall);
  made->state(2).staged = 7;
  made->slot(1, 5).data()[99] = std::byte(3);
  made->chunk(2, 1)[1023] = std::byte(4);
  made->result(2, 3)[255] = std::byte(5);
  made->channel(2, 1).written = 9;
  made->channel(1, 2).data()[127] = std::byte(6);
  EXPECT_EQ(mapped->state(2).staged, 7u);
  EXPECT_EQ(mapped->channel(2, 1).written, 9u);
  EXPECT_EQ(mapped->channel(1, 2).data()[127], std::byte(6));
  EXPECT_EQ(mapped->slot(1, 5).data()[99], std::byte(3));
  EXPECT_EQ(mapped->slot(1, 1).data()[99], std::byte(3)) << "the slot of four collectives earlier";
  EXPECT_EQ(mapped->chunk(2, 3)[1023], std::byte(4));
  EXPECT_EQ(mapped->result(2, 1)[255], std::byte(5));
}

TEST(SharedSegment, NothingOverlaps) {
  UniqueFd file;
  const auto segment = Segment::create(kSmall, file);
  std::set<std::pair<std::byte*, std::byte*>> ranges;
  const auto add = [&](void* begin, int64_t size) {
    ranges.insert({static_cast<std::byte*>(begin), static_cast<std::byte*>(begin) + size});
  };
  for (int64_t rank = 0; rank < 3; ++rank) {
    add(&segment->state(rank), sizeof(RankState));
    for (uint64_t i = 0; i < 4; ++i) add(&segment->slot(rank, i), sizeof(Slot) + 100);
    for (uint64_t i = 0; i < 2; ++i) {
      add(segment->chunk(rank, i), 1024);
      add(segment->result(rank, i), lane_bytes(kSmall, 3));
    }
    for (int64_t other = 0; other < 3; ++other) add(&segment->channel(rank, other), sizeof(Channel) + 128);
  }
  EXPECT_EQ(ranges.size(), 3u * (1 + 4 + 2 + 2 + 3));
  const std::byte* end = nullptr;
  for (const auto& [first, last] : ranges) {
    EXPECT_GE(first, end);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % kLineBytes, 0u);
    end = last;
  }
}

TEST(SharedSegment, IsNotTakenFromAnyDescriptor) {
  const auto other = to_descriptor(std::string(100'000, 'x'));
  EXPECT_THROW(Segment::map(other), Error);
  UniqueFd file;
  Segment::create(kSmall, file);
  std::string copy(static_cast<size_t>(lseek(file.value(), 0, SEEK_END)), '\0');
  ASSERT_EQ(pread(file.value(), copy.data(), copy.size(), 0), static_cast<ssize_t>(copy.size()));
  EXPECT_THROW(Segment::map(to_descriptor(copy)), Error) << "a file that may shrink would end this process by SIGBUS";
  EXPECT_NE(ftruncate(file.value(), 0), 0);
}

TEST(SharedSegment, IsNotTakenFromAnotherVersion) {
  UniqueFd file;
  Segment::create(kSmall, file);
  uint32_t version = 0;
  ASSERT_EQ(pread(file.value(), &version, sizeof version, 8), static_cast<ssize_t>(sizeof version));
  ++version;
  ASSERT_EQ(pwrite(file.value(), &version, sizeof version, 8), static_cast<ssize_t>(sizeof version));
  try {
    Segment::map(file);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition) << error.what();
  }
}

TEST(SharedSegment, IsNotMadeBeyondTheLimitOfFiles) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  UniqueFd file;
  EXPECT_THROW(Segment::create(kSmall, file), Error) << "the kernel would end this process";
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
}

TEST(SharedSegment, HasNoName) {
  UniqueFd file;
  const auto segment = Segment::create(kSmall, file);
  std::ifstream maps("/proc/self/maps");
  std::string line, found;
  while (std::getline(maps, line)) {
    if (line.find("yoke-ranks") != line.npos) found = line;
  }
  EXPECT_NE(found.find("/memfd:yoke-ranks (deleted)"), found.npos) << found;
}

TEST(SharedSegment, NoticesThatAThreadOrAProcessHasEnded) {
  UniqueFd file;
  const auto segment = Segment::create(kSmall, file);
  EXPECT_TRUE(kernel_marks_ends());
  EXPECT_FALSE(segment->has_ended(0));
  std::thread thread([&] {
    segment->mark_alive(0);
    EXPECT_FALSE(segment->has_ended(0));
  });
  thread.join();
  EXPECT_TRUE(segment->has_ended(0));

  Pipe pipe = make_pipe();
  const pid_t child = fork();
  if (child == 0) {
    segment->mark_alive(1);
    (void)!write(pipe.write_end.value(), "x", 1);
    while (true) pause();
  }
  char letter;
  ASSERT_EQ(read(pipe.read_end.value(), &letter, 1), 1);
  EXPECT_FALSE(segment->has_ended(1));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(segment->has_ended(1));
}

}  // namespace
}  // namespace yoke::dist::shared
