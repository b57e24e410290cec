#include "yoke/storage/scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/command.h"

namespace yoke::storage {
namespace {

using testing::ElementsAre;

Usage usage_of(const ScanOptions& options) {
  Scan scan(options);
  Use before;
  EXPECT_TRUE(scan.wait_while_it_counts(Seconds(600), [&](const Use& use) {
    EXPECT_GE(use.files, before.files);
    before = use;
  }));
  return scan.result();
}

std::vector<std::string> largest(const Usage& usage) {
  std::vector<std::string> names;
  for (const auto& folder : usage.largest) names.push_back(std::filesystem::path(folder.path).filename());
  return names;
}

TEST(Scan, TheLargestFoldersAreThoseThatSayMost) {
  const test::TemporaryFolder folder;
  folder.write("outer/inner/large", std::string(1 << 20, 'x'));  // outer is left out: inner has nearly all of it
  folder.write("outer/small", "x");
  folder.write("many/one/file", std::string(300 << 10, 'x'));
  folder.write("many/two/file", std::string(200 << 10, 'x'));
  const auto usage = usage_of({.root = folder.path()});
  EXPECT_THAT(largest(usage), ElementsAre("inner", "many", "one", "two"));
  EXPECT_EQ(usage.total.files, 4);
  EXPECT_EQ(usage.num_folders, 6);
  EXPECT_EQ(usage.largest[1].use.files, 2);
  EXPECT_THAT(largest(usage_of({.root = folder.path(), .num_largest = 2})), ElementsAre("inner", "many"));
}

TEST(Scan, AFileWithSeveralNamesIsCountedOnce) {
  const test::TemporaryFolder folder;
  folder.write("a/file", std::string(1 << 20, 'x'));
  const auto one = usage_of({.root = folder.path()});
  folder.write("b/.keep", "");
  const auto two = usage_of({.root = folder.path()});
  std::filesystem::create_hard_link(folder.path("a/file"), folder.path("b/other"));
  std::filesystem::create_directory_symlink("../a", folder.path("b/link"));
  const auto three = usage_of({.root = folder.path()});
  EXPECT_GE(one.total.bytes, 1 << 20);
  EXPECT_LT(three.total.bytes - two.total.bytes, 1 << 16);
  EXPECT_EQ(three.total.files, two.total.files + 1) << "the symbolic link is a file, and the other name is not";
  EXPECT_EQ(three.users.at(geteuid()).files, three.total.files);
}

TEST(Scan, MountsAreLeftOutByTheirNames) {
  const test::TemporaryFolder folder;
  folder.write("here/file", "x");
  folder.write("away/file", "x");
  const std::vector<Mount> mounts = {{.point = folder.path("away")}, {.point = folder.path()}, {.point = "/elsewhere"}};
  const auto usage = usage_of({.root = folder.path(), .mounts = mounts});
  EXPECT_EQ(usage.total.files, 1);
  EXPECT_THAT(usage.not_crossed, ElementsAre(folder.path("away")));
}

TEST(Scan, ManyFoldersAndAFewDescriptors) {
  const test::TemporaryFolder folder;
  std::string deep = "deep";
  for (int i = 0; i < 200; ++i) deep += "/" + std::to_string(i);
  folder.write(deep + "/file", "x");
  for (int i = 0; i < 1000; ++i) folder.write("wide/" + std::to_string(i) + "/file", "x");
  for (const int num_threads : {1, 16}) {
    const auto usage = usage_of({.root = folder.path(), .num_threads = num_threads});
    EXPECT_EQ(usage.total.files, 1001);
    EXPECT_EQ(usage.num_folders, 1 + 201 + 1001);
    EXPECT_TRUE(usage.unreadable.empty());
  }
}

TEST(Scan, ARootThatCannotBeReadIsNamed) {
  const test::TemporaryFolder folder;
  folder.write("file", "x");
  std::filesystem::create_directory_symlink(".", folder.path("link"));
  for (const auto& [name, reason] : {std::pair{"missing", "No such file or directory"}, {"file", "Not a directory"}}) {
    const auto usage = usage_of({.root = folder.path(name)});
    ASSERT_EQ(usage.unreadable.size(), 1u) << name;
    EXPECT_EQ(usage.unreadable[0].path, folder.path(name));
    EXPECT_EQ(usage.unreadable[0].reason, reason);
    EXPECT_TRUE(usage.largest.empty());
  }
  EXPECT_EQ(usage_of({.root = folder.path("link")}).total.files, 0) << "a link is not followed";
}

TEST(Scan, MayBeAbandoned) {
  const test::TemporaryFolder folder;
  for (int i = 0; i < 100; ++i) folder.write(std::to_string(i) + "/file", "x");
  const Scan scan({.root = folder.path()});
}

}  // namespace
}  // namespace yoke::storage
