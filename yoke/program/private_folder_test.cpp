#include "yoke/program/private_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/command.h"

namespace yoke::program {
namespace {

namespace fs = std::filesystem;

/// A folder of a process that ended without its destructors, as after SIGKILL.
void abandon_folder(const fs::path& parent) {
  const pid_t child = fork();
  if (child == 0) {
    const PrivateFolder folder(parent, "test");
    std::ofstream(folder.path() / "file") << "text";
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

void make_old(const fs::path& path) {
  const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
}

std::vector<std::string> names_in(const fs::path& parent) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(parent)) names.push_back(entry.path().filename());
  return names;
}

TEST(PrivateFolder, IsThisUsersAloneAndRemovedAtTheEnd) {
  const test::TemporaryFolder parent;
  {
    const PrivateFolder folder(parent.path(), "test");
    struct stat info = {};
    ASSERT_EQ(stat(folder.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700U);
    EXPECT_TRUE(folder.path().filename().native().starts_with(".yoke-test-"));
    std::ofstream(folder.path() / "file") << "text";
  }
  EXPECT_THAT(names_in(parent.path()), testing::IsEmpty());
}

TEST(PrivateFolder, TheNextOneRemovesWhatKilledProcessesLeft) {
  const test::TemporaryFolder parent;
  abandon_folder(parent.path());
  const auto left = fs::path(parent.path()) / names_in(parent.path()).at(0);
  { const PrivateFolder folder(parent.path(), "test"); }
  EXPECT_TRUE(fs::exists(left)) << "a process may be about to lock it";
  make_old(left);
  { const PrivateFolder folder(parent.path(), "other"); }
  EXPECT_TRUE(fs::exists(left)) << "it has another purpose";
  { const PrivateFolder folder(parent.path(), "test"); }
  EXPECT_FALSE(fs::exists(left));
}

TEST(PrivateFolder, KeepsWhatIsInUseOrNotItsOwn) {
  const test::TemporaryFolder parent;
  const PrivateFolder in_use(parent.path(), "test");
  make_old(in_use.path());
  const auto link = fs::path(parent.path()) / ".yoke-test-link", file = fs::path(parent.path()) / ".yoke-test-file";
  parent.write("data/file", "text");
  fs::create_directory_symlink(parent.path("data"), link);
  std::ofstream(file) << "text";
  make_old(link);
  make_old(file);
  { const PrivateFolder other(parent.path(), "test"); }
  EXPECT_TRUE(fs::exists(in_use.path()));
  EXPECT_TRUE(fs::exists(link) && fs::exists(file) && fs::exists(parent.path("data/file")));
}

}  // namespace
}  // namespace yoke::program
