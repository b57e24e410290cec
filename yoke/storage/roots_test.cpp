#include "yoke/storage/roots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/support/command.h"
#include "tests/support/message_of.h"

namespace yoke::storage {
namespace {

using testing::HasSubstr;
using yoke::test::message_of;

std::vector<Root> parse(const std::string& text) {
  return parse_roots(site::ConfigFile::parse(text, "c.toml", site::Owner::kSite).section("storage"));
}

std::string complaint_of(const std::string& text) {
  return message_of([&] { parse(text); }, ErrorCode::kDataLoss);
}

TEST(Roots, AreReadInTheOrderOfTheirNames) {
  const auto roots =
      parse("[storage.scratch]\npath = '/scratch/{user}'\ncreate = true\n[storage.data]\npath = '/data'\n");
  EXPECT_EQ(roots, (std::vector<Root>{{"data", "/data"}, {"scratch", "/scratch/{user}", true}}));
  EXPECT_EQ(path_for(roots[1], "ada"), "/scratch/ada");
  EXPECT_EQ(path_for({"x", "/{user}/{user}-x"}, "ada"), "/ada/ada-x");
  for (const char* user : {"", "..", "a/b"})
    EXPECT_THAT(message_of([&] { path_for(roots[1], user); }), HasSubstr("cannot"));
}

TEST(Roots, WhatIsNotUnderstoodIsRefused) {
  EXPECT_THAT(complaint_of("[storage.a]\npath = 'scratch'\n"), HasSubstr("c.toml:2: path takes an absolute path"));
  EXPECT_THAT(complaint_of("[storage.a]\npath = '/a/../b'\n"), HasSubstr("c.toml:2: path takes"));
  EXPECT_THAT(complaint_of("[storage.a]\npath = '/data/{usr}'\n"),
              HasSubstr("c.toml:2: path has {usr}, which is no field; it may have {user}"));
  EXPECT_THAT(complaint_of("[storage.a]\npath = '/data/{user'\n"), HasSubstr("c.toml:2: path has {user, which"));
  EXPECT_THAT(complaint_of("[storage.a]\ncreate = true\n"), HasSubstr("needs a path"));
  EXPECT_THAT(complaint_of("[storage.a]\npath = '/a'\ncreate = true\n"),
              HasSubstr("c.toml:3: create = true needs {user}"));
  EXPECT_THAT(complaint_of("[storage.a]\npaths = '/a'\n"), HasSubstr("has no key paths"));
  EXPECT_THAT(complaint_of("[storage]\npath = '/a'\n"), HasSubstr("is not a table"));
}

TEST(Roots, AUsersOwnDoNotReplaceThoseOfTheSite) {
  EXPECT_EQ(merged({{"a", "/site"}}, {{"a", "/user"}, {"b", "/user"}}),
            (std::vector<Root>{{"a", "/site"}, {"b", "/user"}}));
}

TEST(Roots, AFolderIsMadeForItsUserAlone) {
  const test::TemporaryFolder folder;
  folder.write("disk/.keep", "");
  std::filesystem::create_symlink("disk", folder.path("scratch"));  // an administrator may do this
  const Root root{"scratch", folder.path("scratch") + "/{user}/data", true};
  EXPECT_TRUE(create_root(root, "ada"));
  struct stat status {};
  for (const char* made : {"disk/ada", "disk/ada/data"}) {
    ASSERT_EQ(stat(folder.path(made).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700U);
  }
  EXPECT_FALSE(create_root(root, "ada")) << "it is there already";

  folder.write("elsewhere/.keep", "");
  std::filesystem::create_symlink("../elsewhere", folder.path("disk/bob"));
  EXPECT_THAT(message_of([&] { create_root(root, "bob"); }, ErrorCode::kFailedPrecondition),
              HasSubstr("a link or a file"));
  EXPECT_FALSE(std::filesystem::exists(folder.path("elsewhere/data"))) << "a link was followed";
  folder.write("disk/eve", "");
  EXPECT_THAT(message_of([&] { create_root(root, "eve"); }, ErrorCode::kFailedPrecondition),
              HasSubstr("a link or a file"));
}

}  // namespace
}  // namespace yoke::storage
