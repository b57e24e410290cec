#include "yoke/claim/folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "yoke/base/error.h"

namespace yoke::claim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ClaimFolder : public testing::Test {
 protected:
  ClaimFolder() : path_(testing::TempDir() + "yoke-claim-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp");
    chmod(path_.c_str(), 01777);
  }
  ~ClaimFolder() override {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  LockFolder open() const { return LockFolder(path_, LockFolder::Owner::kRootOrSelf); }
  std::string in_the_way(const std::string& name) const {
    try {
      open().open_shared(name);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      EXPECT_EQ(open().obstacle(name), std::string(error.what()));
      return error.what();
    }
  }

  std::string path_;
};

TEST_F(ClaimFolder, MustBeSafe) {
  EXPECT_NO_THROW(open());
  for (const mode_t mode : {0777, 0755, 0700}) {
    chmod(path_.c_str(), mode);
    EXPECT_THROW(open(), Error) << std::oct << mode;
  }
  EXPECT_THROW(LockFolder(path_ + "/none"), Error);
  std::ofstream(path_ + "/file") << "x";
  EXPECT_THROW(LockFolder(path_ + "/file"), Error);
  if (geteuid() != 0) return;
  chmod(path_.c_str(), 01777);
  EXPECT_NO_THROW(LockFolder{path_});
  ASSERT_EQ(chown(path_.c_str(), 54'321, 0), 0);
  EXPECT_THROW(LockFolder{path_}, Error) << "its owner could remove the locks of others";
}

TEST_F(ClaimFolder, LocksAreReadableByAllWhateverTheUmaskIs) {
  const auto before = umask(077);
  open().open_shared("yoke-a");
  open().create("yoke-b");
  EXPECT_EQ(umask(before), mode_t{077});
  for (const char* name : {"/yoke-a", "/yoke-b"}) {
    struct stat status {};
    ASSERT_EQ(lstat((path_ + name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, mode_t{0644});
  }
  EXPECT_THROW(open().create("yoke-b"), Error) << "it exists";
}

TEST_F(ClaimFolder, LinksAreNotFollowed) {
  std::ofstream(path_ + "/victim") << "x";
  ASSERT_EQ(symlink((path_ + "/victim").c_str(), (path_ + "/yoke-s").c_str()), 0);
  ASSERT_EQ(symlink("/no/such/file", (path_ + "/yoke-d").c_str()), 0);
  EXPECT_THAT(in_the_way("yoke-s"), HasSubstr("symbolic link"));
  EXPECT_THAT(in_the_way("yoke-d"), HasSubstr("symbolic link"));
  ASSERT_EQ(link((path_ + "/victim").c_str(), (path_ + "/yoke-h").c_str()), 0);
  EXPECT_THAT(in_the_way("yoke-h"), HasSubstr("hard link"));
  EXPECT_FALSE(open().open_existing("yoke-s"));
  EXPECT_FALSE(open().open_existing("yoke-h"));
  EXPECT_THROW(open().create("yoke-s"), Error);
}

TEST_F(ClaimFolder, OnlyRegularFilesAreLocks) {
  ASSERT_EQ(mkfifo((path_ + "/yoke-f").c_str(), 0666), 0);
  ASSERT_EQ(mkdir((path_ + "/yoke-m").c_str(), 0777), 0);
  EXPECT_THAT(in_the_way("yoke-f"), HasSubstr("not a regular file"));
  EXPECT_THAT(in_the_way("yoke-m"), HasSubstr("not a regular file"));
  EXPECT_FALSE(open().open_existing("yoke-f"));
}

TEST_F(ClaimFolder, NoticesAReplacedFile) {
  const auto folder = open();
  const auto fd = folder.open_shared("yoke-a");
  EXPECT_TRUE(folder.is_current(fd.value(), "yoke-a"));
  ASSERT_EQ(rename((path_ + "/yoke-a").c_str(), (path_ + "/yoke-b").c_str()), 0);
  EXPECT_FALSE(folder.is_current(fd.value(), "yoke-a"));
  const auto other = folder.open_shared("yoke-a");
  EXPECT_FALSE(folder.is_current(fd.value(), "yoke-a"));
  EXPECT_TRUE(folder.is_current(other.value(), "yoke-a"));
  ASSERT_EQ(link((path_ + "/yoke-a").c_str(), (path_ + "/yoke-c").c_str()), 0);
  EXPECT_FALSE(folder.is_current(other.value(), "yoke-a")) << "it has a second name";
}

TEST_F(ClaimFolder, ListsItsFiles) {
  for (const char* name : {"/yoke-dev-b", "/yoke-dev-a", "/other"}) std::ofstream(path_ + name) << "x";
  EXPECT_THAT(open().names("yoke-dev-"), ElementsAre("yoke-dev-a", "yoke-dev-b"));
  open().remove("yoke-dev-a");
  open().remove("yoke-none");
  EXPECT_THAT(open().names("yoke-dev-"), ElementsAre("yoke-dev-b"));
}

TEST_F(ClaimFolder, IsChosenByTheEnvironmentForTests) {
  EXPECT_EQ(find_lock_folder({}, {{"YOKE_CLAIM_DIR", path_}}).path(), path_);
  EXPECT_THROW(find_lock_folder({}, {{"YOKE_CLAIM_DIR", path_ + "/none"}}), Error);
  EXPECT_THROW(find_lock_folder({.lock_directory = path_ + "/none"}, {}), Error) << "there is no silent fallback";
}

TEST_F(ClaimFolder, NoVariableLiftsTheLimitsOfASite) {
  if (geteuid() != 0) GTEST_SKIP() << "only root makes a folder of root's";
  auto other = testing::TempDir() + "yoke-claim-XXXXXX";
  ASSERT_NE(mkdtemp(other.data()), nullptr);
  chmod(other.c_str(), 01777);
  const SiteConfig decided{.lock_directory = path_, .is_decided = true};
  EXPECT_EQ(find_lock_folder(decided, {}).path(), path_);
  EXPECT_EQ(find_lock_folder(decided, {{"YOKE_CLAIM_DIR", path_}}).path(), path_) << "it names the same folder";
  EXPECT_THROW(find_lock_folder(decided, {{"YOKE_CLAIM_DIR", other}}), Error) << "claims there count nowhere else";
  const SiteConfig own{.lock_directory = path_, .is_of_user = true};
  EXPECT_THROW(find_lock_folder(own, {}), Error) << "the folder is root's, and the limits are the user's";
  EXPECT_THROW(find_lock_folder(own, {{"YOKE_CLAIM_DIR", other}}), Error);
  std::filesystem::remove(other);
}

}  // namespace
}  // namespace yoke::claim
