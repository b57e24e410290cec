#include "yoke/claim/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::claim {
namespace {

using std::chrono::hours;
using testing::HasSubstr;

SiteConfig parse(const std::string& text, site::Owner owner = site::Owner::kSite) {
  return parse_config(site::ConfigFile::parse(text, "c.toml", owner).section("claim"));
}

std::string complaint(const std::string& text, site::Owner owner = site::Owner::kSite) {
  try {
    parse(text, owner);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ClaimConfig, IsRead) {
  const auto config = parse("[claim]\nlock_directory = '/run/gpus'\ndevices_per_user = 4\nlongest = '24h'\n");
  EXPECT_EQ(config.lock_directory, "/run/gpus");
  EXPECT_EQ(config.devices_per_user, 4);
  EXPECT_EQ(config.longest, hours(24));
  EXPECT_EQ(parse(""), SiteConfig());
}

TEST(ClaimConfig, RefusesWhatItDoesNotUnderstand) {
  EXPECT_THAT(complaint("[claim]\ndevices_per_usr = 4\n"), HasSubstr("c.toml:2: [claim] has no key devices_per_usr"));
  EXPECT_THAT(complaint("[claim]\n\ndevices_per_user = '4'\n"), HasSubstr("c.toml:3: devices_per_user takes"));
  EXPECT_THAT(complaint("[claim]\nlongest = 24\n"), HasSubstr("\"24h\""));
  EXPECT_THAT(complaint("[claim]\nlock_directory = 'here'\n"), HasSubstr("absolute"));
  EXPECT_THAT(complaint("[claim]\nlock_directory = '/tmp'\n", site::Owner::kUser), HasSubstr("/etc/yoke/config.toml"));
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

}  // namespace
}  // namespace yoke::claim
