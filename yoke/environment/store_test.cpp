#include "yoke/environment/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "tests/support/command.h"
#include "yoke/base/error.h"

namespace yoke::environment {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;
using testing::SizeIs;

struct Home : test::TemporaryFolder {
  Environment environment = {{"HOME", path()}};
  fs::path env(const std::string& name) const { return fs::path(path()) / ".local/share/yoke/env" / name; }
  void make(const std::string& name, Stage stage) const {
    write(".local/share/yoke/env/" + name + "/pyvenv.cfg", "home = /usr/bin\nversion = 3.11.2\n");
    write(".local/share/yoke/env/" + name + "/bin/python", "#!/bin/sh\n", true);
    write_mark(env(name), {.stage = stage, .created = 1'795'000'000, .packages = {"torch"}, .index_url = "https://x"});
  }
};

TEST(Store, FollowsTheRulesOfXdg) {
  EXPECT_EQ(data_home({{"HOME", "/home/ada"}}), "/home/ada/.local/share");
  EXPECT_EQ(data_home({{"HOME", "/home/ada"}, {"XDG_DATA_HOME", "/data/ada"}}), "/data/ada");
  EXPECT_EQ(data_home({{"HOME", "/home/ada"}, {"XDG_DATA_HOME", "data"}}), "/home/ada/.local/share")
      << "a relative folder is ignored";
  EXPECT_THROW(data_home({}), Error);
  EXPECT_EQ(folder_of("torch", {{"HOME", "/home/ada"}}), "/home/ada/.local/share/yoke/env/torch");
  EXPECT_EQ(folder_of("/x/../data/env/", {}), "/data/env");
}

TEST(Store, ListsWhatIsMarked) {
  const Home home;
  EXPECT_THAT(list_environments(home.environment), IsEmpty());
  home.make("b", Stage::kReady);
  home.make("a", Stage::kCreating);
  home.make("c", Stage::kReady);
  fs::remove(home.env("c") / "bin/python");
  home.write(".local/share/yoke/env/foreign/pyvenv.cfg", "");
  fs::create_symlink(home.env("b"), home.env("link"));
  const auto listed = list_environments(home.environment);
  ASSERT_THAT(listed, SizeIs(3));
  EXPECT_EQ(listed[0].name, "a");
  EXPECT_EQ(listed[0].state, State::kIncomplete);
  EXPECT_EQ(listed[1].state, State::kReady);
  EXPECT_EQ(listed[1].python, "3.11.2");
  EXPECT_EQ(listed[1].mark.packages, std::vector<std::string>{"torch"});
  EXPECT_EQ(listed[2].state, State::kBroken);
  const auto lock = lock_folder(home.env("a"));
  EXPECT_EQ(list_environments(home.environment)[0].state, State::kCreating);
  EXPECT_THROW(remove_environment(home.env("a")), Error);
}

TEST(Store, RemovesOnlyWhatItHasMade) {
  const Home home;
  home.make("a", Stage::kReady);
  home.write("kept/file", "x");
  fs::create_symlink(home.path("kept"), home.env("a") / "link");
  remove_environment(home.env("a"));
  EXPECT_FALSE(fs::exists(home.env("a")));
  EXPECT_TRUE(fs::exists(home.path("kept/file"))) << "links are not followed";
  EXPECT_THROW(remove_environment(home.env("a")), Error);
  EXPECT_THROW(remove_environment(home.path("kept")), Error);
  EXPECT_TRUE(fs::exists(home.path("kept/file")));
  home.make("b", Stage::kReady);
  fs::create_symlink(home.env("b"), home.path("link"));
  EXPECT_THROW(remove_environment(home.path("link")), Error);
  home.write("forged/yoke-environment.json", "{\"yoke_environment\": 2}");
  EXPECT_THROW(remove_environment(home.path("forged")), Error);
  EXPECT_TRUE(fs::exists(home.env("b") / "bin/python"));
}

// A limit of 0 bytes for files makes every write fail, as a full disk does.
TEST(Store, RemovesOnAFullDisk) {
  const Home home;
  home.make("a", Stage::kReady);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  std::string problem;
  try {
    remove_environment(home.env("a"));
  } catch (const Error& error) {
    problem = error.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(problem, "");
  EXPECT_FALSE(fs::exists(home.env("a")));
}

TEST(Store, RemovesTheFolderThatWasLookedAt) {
  const Home home;
  home.make("a", Stage::kReady);
  home.write("kept/bin/tool", "x");
  home.write("kept/lib/file", "x");
  const auto lock = lock_folder(home.env("a"));
  // What the owner of the folder can do at any moment after root has looked at it.
  fs::rename(home.env("a"), home.path("moved"));
  fs::create_symlink(home.path("kept"), home.env("a"));
  EXPECT_THROW(remove_locked(lock, home.env("a")), Error) << "the path is no longer the folder";
  EXPECT_TRUE(fs::exists(home.path("kept/bin/tool")));
  EXPECT_TRUE(fs::exists(home.path("kept/lib/file")));
  EXPECT_FALSE(fs::exists(home.path("moved/bin"))) << "that was the folder";
}

TEST(Store, AnInterruptedRemovalLeavesABrokenEnvironment) {
  const Home home;
  home.make("a", Stage::kReady);
  fs::remove_all(home.env("a") / "bin");
  EXPECT_EQ(list_environments(home.environment)[0].state, State::kBroken);
  remove_environment(home.env("a"));
  EXPECT_FALSE(fs::exists(home.env("a")));
}

}  // namespace
}  // namespace yoke::environment
