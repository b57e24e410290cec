#include "yoke/dist/shared/arena.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "yoke/base/error.h"
#include "yoke/dist/shared/segment.h"

namespace yoke::dist::shared {
namespace {

constexpr int64_t kSpace = 64 << 20;
const Layout kLayout{.num_ranks = 2, .arena_bytes = kSpace};

int64_t bytes_in_memory(const UniqueFd& file) {
  struct stat status = {};
  fstat(file.value(), &status);
  return status.st_blocks * 512;
}

TEST(SharedArena, ABlockIsSeenByOtherRanks) {
  UniqueFd file;
  const auto segment = Segment::create(kLayout, file);
  const auto first = segment->arena_of(file, 0), second = segment->arena_of(file, 1);
  const auto block = first->allocate(5000), other = second->allocate(5000);
  std::memset(block.get(), 7, 5000);
  std::memset(other.get(), 9, 5000);
  const auto place = first->find(block.get() + 100, 4900);
  ASSERT_GE(place.offset, 0);
  EXPECT_EQ(second->map(place)[4899], std::byte(7));
  second->map(place)[0] = std::byte(8);
  EXPECT_EQ(block.get()[100], std::byte(8));
  EXPECT_EQ(first->map(second->find(other.get(), 1))[4999], std::byte(9));
}

TEST(SharedArena, OnlyItsBlocksHaveAPlace) {
  UniqueFd file;
  const auto arena = Segment::create(kLayout, file)->arena_of(file, 0);
  std::byte outside[8];
  EXPECT_LT(arena->find(outside, 8).offset, 0);
  auto block = arena->allocate(5000);
  EXPECT_LT(arena->find(outside, 8).offset, 0);
  EXPECT_LT(arena->find(block.get() - 1, 8).offset, 0);
  EXPECT_LT(arena->find(block.get(), kSpace).offset, 0) << "it ends before";
  auto* const memory = block.get();
  block.reset();
  EXPECT_LT(arena->find(memory, 8).offset, 0);
  EXPECT_EQ(arena->allocate(kSpace + 1), nullptr);
  EXPECT_EQ(arena->allocate(0), nullptr);
}

TEST(SharedArena, MemoryEndsWithItsBlock) {
  UniqueFd file;
  const auto segment = Segment::create(kLayout, file);
  const auto arena = segment->arena_of(file, 0);
  const auto before = bytes_in_memory(file);
  auto block = arena->allocate(10 << 20);
  EXPECT_EQ(bytes_in_memory(file), before) << "nothing has been touched";
  std::memset(block.get(), 1, 10 << 20);
  EXPECT_GE(bytes_in_memory(file), before + (10 << 20));
  block.reset();
  EXPECT_EQ(bytes_in_memory(file), before);
}

TEST(SharedArena, ALayoutMayHaveNone) {
  UniqueFd file;
  EXPECT_EQ(Segment::create({.num_ranks = 2}, file)->arena_of(file, 0), nullptr);
}

}  // namespace
}  // namespace yoke::dist::shared
