#include "yoke/claim/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "yoke/base/error.h"

namespace yoke::claim {
namespace {

using std::chrono::hours;
using testing::HasSubstr;

std::string complaint(const std::string& text, ConfigOwner owner = ConfigOwner::kSite) {
  try {
    parse_config(text, "c.toml", owner);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ClaimConfig, IsRead) {
  const auto config = parse_config(
      "[storage]\nroot = 1\n[claim]\nlock_directory = '/run/gpus'\ndevices_per_user = 4\nlongest = '24h'\n", "c.toml",
      ConfigOwner::kSite);
  EXPECT_EQ(config.lock_directory, "/run/gpus");
  EXPECT_EQ(config.devices_per_user, 4);
  EXPECT_EQ(config.longest, hours(24));
  EXPECT_EQ(parse_config("", "c.toml", ConfigOwner::kSite), SiteConfig());
}

TEST(ClaimConfig, RefusesWhatItDoesNotUnderstand) {
  EXPECT_THAT(complaint("[claim]\ndevices_per_usr = 4\n"), HasSubstr("c.toml:2: [claim] has no key devices_per_usr"));
  EXPECT_THAT(complaint("[claim]\n\ndevices_per_user = '4'\n"), HasSubstr("c.toml:3: devices_per_user takes"));
  EXPECT_THAT(complaint("[claim]\ndevices_per_user = -1\n"), HasSubstr("whole number"));
  EXPECT_THAT(complaint("[claim]\nlongest = 24\n"), HasSubstr("\"24h\""));
  EXPECT_THAT(complaint("[claim]\nlock_directory = 'here'\n"), HasSubstr("absolute"));
  EXPECT_THAT(complaint("claim = 4\n"), HasSubstr("write [claim]"));
  EXPECT_THAT(complaint("[claim\n"), HasSubstr("c.toml:1: "));
  EXPECT_THAT(complaint("[claim]\nlock_directory = '/tmp'\n", ConfigOwner::kUser), HasSubstr("/etc/yoke/config.toml"));
}

TEST(ClaimConfig, AUserCannotLoosenIt) {
  const SiteConfig site{.lock_directory = "/run/gpus", .devices_per_user = 4, .longest = hours(24)};
  EXPECT_EQ(tightened(site, {.devices_per_user = 8, .longest = hours(48)}), site);
  const auto stricter = tightened(site, {.devices_per_user = 2, .longest = hours(1)});
  EXPECT_EQ(stricter.devices_per_user, 2);
  EXPECT_EQ(stricter.longest, hours(1));
  EXPECT_EQ(stricter.lock_directory, "/run/gpus");
  EXPECT_EQ(tightened({}, {.devices_per_user = 2}).devices_per_user, 2);
}

TEST(ClaimConfig, AFileThatOthersCanWriteIsRefused) {
  const std::string path = testing::TempDir() + "yoke-claim-config.toml";
  std::ofstream(path) << "[claim]\ndevices_per_user = 3\n";
  const Environment environment{{"YOKE_CLAIM_CONFIG", path}};
  std::filesystem::permissions(path, std::filesystem::perms{0644});
  EXPECT_EQ(read_config(environment).devices_per_user, 3);
  std::filesystem::permissions(path, std::filesystem::perms{0666});
  EXPECT_THROW(read_config(environment), Error);
  std::filesystem::remove(path);
  EXPECT_THROW(read_config(environment), Error) << "a file that was named must exist";
}

}  // namespace
}  // namespace yoke::claim
