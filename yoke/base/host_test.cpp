#include "yoke/base/host.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace yoke
