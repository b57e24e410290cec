// Tests `yoke storage` on real folders, with du as the oracle of its sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"

namespace yoke::test {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

constexpr uid_t kAda = 61'001;

class Storage : public testing::Test {
 protected:
  void SetUp() override {
    chmod(folder_.path().c_str(), 0755);
    // A copy, because other users may not reach the build tree.
    std::filesystem::copy_file(YOKE_COMMAND, folder_.path("yoke"));
    folder_.write("config.toml", "");
    chmod(folder_.path("config.toml").c_str(), 0644);
  }

  Result yoke(std::vector<std::string> words, uid_t uid = 0) const {
    words.insert(words.begin(), folder_.path("yoke"));
    if (uid != 0) {
      const auto number = std::to_string(uid);
      words.insert(words.begin(), {"setpriv", "--reuid", number, "--regid", number, "--clear-groups"});
    }
    return run({.argv = words,
                .environment = {{"YOKE_SITE_CONFIG", folder_.path("config.toml")}, {"HOME", folder_.path()}},
                .without = {"XDG_CONFIG_HOME", "COLUMNS", "TMPDIR"},
                .folder = "/"});
  }
  Json usage(const std::string& folder, uid_t uid = 0) const {
    return Json::parse(yoke({"storage", "usage", folder, "--json"}, uid).out);
  }
  static int64_t du(const std::string& folder) {
    return std::stoll(run({.argv = {"du", "-sx", "--block-size=1", folder}}).out);
  }

  TemporaryFolder folder_;
};

TEST_F(Storage, SizesAreThoseOfDu) {
  folder_.write("data/a/large", std::string(3 << 20, 'x'));
  folder_.write("data/a/.hidden", "x");
  folder_.write("data/name \x01\xff/file", std::string(5000, 'x'));
  folder_.write("data/sparse", "");
  std::filesystem::resize_file(folder_.path("data/sparse"), int64_t{1} << 30);
  std::filesystem::create_hard_link(folder_.path("data/a/large"), folder_.path("data/again"));
  std::filesystem::create_symlink("/usr", folder_.path("data/link"));
  mkfifo(folder_.path("data/fifo").c_str(), 0600);
  for (int i = 0; i < 300; ++i) folder_.write("data/many/" + std::to_string(i % 7) + "/" + std::to_string(i), "x");
  const auto found = usage(folder_.path("data"));
  EXPECT_EQ(found.at("bytes"), du(folder_.path("data")));
  EXPECT_EQ(found.at("files"), 300 + 6);
  EXPECT_EQ(found.at("unreadable").size(), 0U);
  EXPECT_TRUE(found.at("quotas").is_array());
  // A tree that nobody made for this test.
  EXPECT_EQ(usage("/usr/share/doc").at("bytes"), du("/usr/share/doc"));

  const auto text = yoke({"storage", "usage", folder_.path("data")});
  EXPECT_THAT(text.out, HasSubstr("name ??\n")) << "bytes that a terminal might interpret are not printed";
  EXPECT_EQ(yoke({"storage", "usage", folder_.path("nothing")}).exit_code, 66);
  EXPECT_EQ(yoke({"storage", "usage", folder_.path("data/sparse")}).exit_code, 64);
}

TEST_F(Storage, WhatAUserMayNotReadIsNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  folder_.write("data/open/file", "x");
  folder_.write("data/secret/file", std::string(1 << 20, 'x'));
  ASSERT_EQ(chown(folder_.path("data/open/file").c_str(), kAda, kAda), 0);
  chmod(folder_.path("data/secret").c_str(), 0700);
  const auto found = usage(folder_.path("data"), kAda);
  ASSERT_EQ(found.at("unreadable").size(), 1U);
  EXPECT_EQ(found.at("unreadable")[0].at("path"), folder_.path("data/secret"));
  EXPECT_EQ(found.at("unreadable")[0].at("reason"), "Permission denied");
  EXPECT_EQ(found.at("files"), 1);

  const auto all = usage(folder_.path("data")).at("users");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].at("uid"), 0);
  EXPECT_EQ(all[0].at("files"), 1);
  EXPECT_EQ(all[1].at("uid"), kAda);
  EXPECT_GT(all[1].at("bytes"), 0);
  EXPECT_THAT(yoke({"storage", "usage", folder_.path("data"), "--by-user"}).out, HasSubstr("root"));
}

TEST_F(Storage, OtherFileSystemsAreNotCrossed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  folder_.write("data/other/below", "x");
  const auto result = run({.argv = {"unshare", "--mount", "sh", "-c",
                                    "mount -t tmpfs none \"$1/other\" && echo x > \"$1/other/file\" && "
                                    "\"$2\" storage usage \"$1\" --json && du -sx --block-size=1 \"$1\" >&2",
                                    "sh", folder_.path("data"), folder_.path("yoke")}});
  const auto found = Json::parse(result.out);
  EXPECT_EQ(found.at("not_crossed"), Json({folder_.path("data/other")}));
  EXPECT_EQ(found.at("files"), 0);
  EXPECT_EQ(found.at("bytes"), std::stoll(result.err));
}

TEST_F(Storage, RootsAreListed) {
  folder_.write("config.toml", "[storage.data]\npath = '" + folder_.path() + "'\n[storage.new]\npath = '" +
                                   folder_.path("new") + "/{user}'\ncreate = true\n");
  const auto result = yoke({"storage", "--json"});
  std::map<std::string, Json> roots;
  const auto listed = Json::parse(result.out).at("roots");
  for (const auto& root : listed) roots[root.at("name")] = root;
  ASSERT_EQ(roots.size(), 4U) << result.out;
  EXPECT_EQ(roots["data"].at("state"), "there");
  EXPECT_EQ(roots["data"].at("path"), folder_.path());
  EXPECT_EQ(roots["home"].at("path"), folder_.path());
  EXPECT_EQ(roots["tmp"].at("path"), "/tmp");
  EXPECT_EQ(roots["new"].at("state"), "absent");
  EXPECT_EQ(roots["new"].at("may_create"), true);
  const auto df = run({.argv = {"stat", "-f", "-c", "%b %S", folder_.path()}}).out;
  EXPECT_EQ(roots["data"].at("total_bytes"), std::stoll(df) * std::stoll(df.substr(df.find(' '))));
  EXPECT_TRUE(roots["data"].at("quotas").is_array());
  EXPECT_TRUE(roots["data"].at("quotas_unknown").is_null()) << roots["data"];
  EXPECT_GT(roots["new"].at("free_bytes"), 0) << "of the file system that would have it";
  EXPECT_THAT(yoke({"storage"}).out, HasSubstr("`yoke storage create new` makes it"));

  folder_.write("config.toml", "[storage.data]\npth = '/data'\n");
  EXPECT_EQ(yoke({"storage"}).exit_code, 65);
}

TEST_F(Storage, SpeedsAreMeasured) {
  const auto result = yoke({"storage", "--measure", "--json", "--timeout", "60"});
  const auto roots = Json::parse(result.out).at("roots");
  EXPECT_EQ(roots.size(), 2U);
  for (const auto& root : roots) {
    if (root.at("free_bytes") < (int64_t{4} << 30)) continue;
    EXPECT_GT(root.at("speed").at("write_bytes_per_s"), 1e5) << root;
    EXPECT_GT(root.at("speed").at("read_bytes_per_s"), 1e5) << root;
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 2) << "nothing is left behind";
}

TEST_F(Storage, AUserMakesAFolderOfItsOwn) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  folder_.write("scratch/.keep", "");
  chmod(folder_.path("scratch").c_str(), 01777);
  folder_.write("config.toml", "[storage.data]\npath = '/data/{user}'\n[storage.scratch]\npath = '" +
                                   folder_.path("scratch") + "/{user}'\ncreate = true\n");
  const auto made = yoke({"storage", "create"}, kAda);
  const auto there = folder_.path("scratch/61001");  // a user without an account has a number for a name
  EXPECT_EQ(made.out, "scratch: made " + there + "\n") << made.err;
  struct stat status {};
  ASSERT_EQ(stat(there.c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, kAda);
  EXPECT_EQ(status.st_mode & 07777, 0700U);
  EXPECT_EQ(yoke({"storage", "create", "scratch"}, kAda).out, "scratch: is there already: " + there + "\n");
  EXPECT_EQ(yoke({"storage", "create", "data"}, kAda).exit_code, 77);
  EXPECT_EQ(yoke({"storage", "create", "nothing"}, kAda).exit_code, 66);

  // A folder that somebody else has put there in advance is refused, and so is a link.
  std::filesystem::remove(there);
  folder_.write("scratch/61001/file", "x");
  const auto foreign = yoke({"storage", "create"}, kAda);
  EXPECT_EQ(foreign.exit_code, 69);
  EXPECT_THAT(foreign.err, HasSubstr(there + " belongs to somebody else"));
  std::filesystem::remove_all(there);
  std::filesystem::create_symlink("/tmp", there);
  EXPECT_EQ(yoke({"storage", "create"}, kAda).exit_code, 69);
}

}  // namespace
}  // namespace yoke::test
