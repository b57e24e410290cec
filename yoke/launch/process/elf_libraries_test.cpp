#include "yoke/launch/process/elf_libraries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::launch {
namespace {

namespace fs = std::filesystem;

std::optional<std::vector<std::string>> libraries_in(const std::string& bytes) {
  const auto path = fs::path(testing::TempDir()) / ("elf_libraries_test." + std::to_string(getpid()));
  std::ofstream(path, std::ios::binary) << bytes;
  const auto result = needed_libraries(path);
  fs::remove(path);
  return result;
}

TEST(ElfLibraries, OfThisVeryTest) {
  const auto libraries = needed_libraries("/proc/self/exe");
  ASSERT_TRUE(libraries);
  EXPECT_THAT(*libraries, testing::Contains("libc.so.6"));
  EXPECT_THAT(*libraries, testing::Not(testing::Contains("libyoke_dist.so")));
}

TEST(ElfLibraries, WhatIsNoProgramHasNone) {
  EXPECT_EQ(libraries_in(""), std::nullopt);
  EXPECT_EQ(libraries_in("#!/bin/sh\nexec ./libyoke_dist.so\n"), std::nullopt);
  EXPECT_EQ(libraries_in("\177ELF"), std::nullopt);
  EXPECT_THROW(needed_libraries("/nonexistent/program"), Error);
}

// Whatever a damaged file contains, the function reads nothing outside of the file, and returns.
TEST(ElfLibraries, TornFilesAreAnswered) {
  const auto whole = read_file("/proc/self/exe");
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    auto bytes = whole.substr(0, random() % 2 == 0 ? random() % 4096 : whole.size() / 16);
    for (int flips = 0; flips < 20 && !bytes.empty(); ++flips) {
      bytes[random() % std::min<size_t>(bytes.size(), 1024)] = static_cast<char>(random());
    }
    libraries_in(bytes);
  }
}

}  // namespace
}  // namespace yoke::launch
