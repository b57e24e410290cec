#include "yoke/base/host.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke {
namespace {

TEST(Host, TheUsersFoldersFollowTheSpecification) {
  using Folder = std::optional<std::filesystem::path>;
  const auto config = [](const Environment& environment) { return user_folder(UserFolder::kConfig, environment); };
  EXPECT_EQ(config({{"HOME", "/home/ada"}}), Folder("/home/ada/.config"));
  EXPECT_EQ(config({{"HOME", "/home/ada"}, {"XDG_CONFIG_HOME", "/etc/ada"}}), Folder("/etc/ada"));
  EXPECT_EQ(config({{"HOME", "/home/ada"}, {"XDG_CONFIG_HOME", "ada"}}), Folder("/home/ada/.config"));
  EXPECT_EQ(config({{"XDG_CONFIG_HOME", "/etc/ada"}}), Folder("/etc/ada"));
  EXPECT_EQ(config({{"HOME", ""}, {"XDG_CONFIG_HOME", ""}}), Folder());
  EXPECT_EQ(config({{"HOME", "ada"}}), Folder());
  const Environment ada = {{"HOME", "/home/ada"}};
  EXPECT_EQ(user_folder(UserFolder::kData, ada), Folder("/home/ada/.local/share"));
  EXPECT_EQ(user_folder(UserFolder::kState, ada), Folder("/home/ada/.local/state"));
}

TEST(PrivateFolder, IsWritableForItsUserAlone) {
  namespace fs = std::filesystem;
  test::TemporaryFolder folder;
  const fs::path path = folder.path("a/b");
  make_private_folder(path);
  make_private_folder(path);
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
  fs::permissions(path, fs::perms::others_write, fs::perm_options::add);
  const auto error = test::error_of([&] { make_private_folder(path, ", because of why"); });
  EXPECT_EQ(error.code(), ErrorCode::kPermissionDenied);
  EXPECT_EQ(std::string(error.what()), path.string() +
                                           " must be a folder of yours that nobody else can write, because "
                                           "of why; remove it, or `chmod go-w` it if it is yours");
  const fs::path link = folder.path("link");
  fs::permissions(path, fs::perms::owner_all);
  fs::create_directory_symlink(path, link);
  EXPECT_EQ(test::error_of([&] { make_private_folder(link); }).code(), ErrorCode::kPermissionDenied);
}

}  // namespace
}  // namespace yoke
