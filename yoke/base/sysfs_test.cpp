#include "yoke/base/sysfs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "fakes/sysfs/fixture_tree.h"

namespace yoke {
namespace {

using fakes::FixtureTree;

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(Sysfs, Numbers) {
  EXPECT_EQ(parse_number("42\n"), 42);
  EXPECT_EQ(parse_number(" -1 "), -1);
  EXPECT_EQ(parse_number("0x1002"), 0x1002);
  EXPECT_EQ(parse_number("0x038000\n"), 0x038000);
  for (const auto* text :
       {"", " ", "0x", "max", "12 34", "1.5", "0x1g", "18446744073709551615", "99999999999999999999"}) {
    EXPECT_EQ(parse_number(text), std::nullopt) << text;
  }
}

TEST(Sysfs, Properties) {
  EXPECT_THAT(parse_properties("cpu_cores_count 0\nsimd_count 440\nunique_id 18446744073709551615\n"),
              ElementsAre(Pair("cpu_cores_count", 0), Pair("simd_count", 440), Pair("unique_id", -1)));
  EXPECT_THAT(parse_properties("MemTotal:       24576 kB\nue: 3\nce:\n: 4\nname gfx90a\n\n"),
              ElementsAre(Pair("MemTotal", 24576), Pair("ue", 3)));
  EXPECT_THAT(parse_properties(std::string_view("a\0b 1\n\xff 2", 9)),
              ElementsAre(Pair(std::string("a\0b", 3), 1), Pair("\xff", 2)));
  EXPECT_THAT(parse_properties(""), IsEmpty());
}

TEST(Sysfs, FilesThatAreNotThereAreNothing) {
  const FixtureTree tree;
  tree.write("value", "17\n");
  tree.write("text", "a\nb \n");
  EXPECT_EQ(read_number(tree.path() / "value"), 17);
  EXPECT_EQ(read_text(tree.path() / "text"), "a\nb");
  EXPECT_EQ(read_text(tree.path() / "missing"), std::nullopt);
  EXPECT_EQ(read_text(tree.path()), std::nullopt);  // a folder opens, but reading it fails
  EXPECT_EQ(access_error(tree.path() / "value"), 0);
  EXPECT_EQ(access_error(tree.path() / "missing"), ENOENT);
}

TEST(Sysfs, LongFilesAreReadToTheirLimit) {
  const FixtureTree tree;
  tree.write("long", std::string(300'000, 'x'));
  EXPECT_EQ(read_text(tree.path() / "long")->size(), 65'536);
  EXPECT_EQ(read_text(tree.path() / "long", 4096)->size(), 4096);
  EXPECT_EQ(read_text(tree.path() / "long", 1 << 20)->size(), 300'000);
}

TEST(Sysfs, NumberedFoldersInOrderOfTheirNumbers) {
  const FixtureTree tree;
  for (const auto* name : {"node10", "node2", "node", "nodeX", "other3"}) tree.write(std::string("nodes/") + name, "");
  const auto found = numbered(tree.path() / "nodes", "node");
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].first, 2);
  EXPECT_EQ(found[1].second.filename(), "node10");
  EXPECT_THAT(numbered(tree.path() / "missing"), IsEmpty());
}

}  // namespace
}  // namespace yoke
