#include "yoke/claim/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/packaged_config.h"
#include "yoke/base/error.h"

namespace yoke::claim {
namespace {

using std::chrono::hours;
using testing::AnyOf;
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

TEST(ClaimConfig, ThePackagesFileHasEachKeyAndTheDefaults) {
  EXPECT_EQ(parse(test::packaged_config(test::Settings::kDefaults)), SiteConfig());
  const auto all = "\n" + test::packaged_config(test::Settings::kAll);
  EXPECT_EQ(parse(all).devices_per_user, 4) << "an example";
  const auto message = complaint("[claim]\nnone = 1\n");  // it lists the keys
  const auto keys = message.substr(message.find("it has ") + 7);
  ASSERT_THAT(keys, HasSubstr(", idle_end"));
  for (const auto key : split(keys, ',')) {
    const std::string name(key.substr(key.find_first_not_of(' ')));
    EXPECT_THAT(all, AnyOf(HasSubstr("\n" + name + " = "), HasSubstr("\n[claim." + name + "]\n")));
  }
}

TEST(ClaimConfig, RefusesWhatItDoesNotUnderstand) {
  EXPECT_THAT(complaint("[claim]\ndevices_per_usr = 4\n"), HasSubstr("c.toml:2: [claim] has no key devices_per_usr"));
  EXPECT_THAT(complaint("[claim]\n\ndevices_per_user = '4'\n"), HasSubstr("c.toml:3: devices_per_user takes"));
  EXPECT_THAT(complaint("[claim]\nlongest = 24\n"), HasSubstr("\"24h\""));
  EXPECT_THAT(complaint("[claim]\nlock_directory = 'here'\n"), HasSubstr("absolute"));
  EXPECT_THAT(complaint("[claim]\nlock_directory = '/tmp'\n", site::Owner::kUser), HasSubstr("/etc/yoke/config.toml"));
}

TEST(ClaimConfig, OrderAndQuotas) {
  const auto config = parse(
      "[claim]\norder = 'fair'\nhalf_life = '2d'\npatience = '6h'\nhistory_directory = '/var/lib/yoke'\n"
      "[claim.users]\nada = 8\n[claim.groups]\nstudents = 2\n");
  EXPECT_EQ(config.order, Order::kFair);
  EXPECT_EQ(config.half_life, hours(48));
  EXPECT_EQ(config.patience, hours(6));
  EXPECT_EQ(config.history_directory, "/var/lib/yoke");
  EXPECT_EQ(config.users, (std::map<std::string, int64_t>{{"ada", 8}}));
  EXPECT_EQ(config.groups, (std::map<std::string, int64_t>{{"students", 2}}));
  EXPECT_THAT(complaint("[claim]\norder = 'random'\n"), HasSubstr("c.toml:2: order takes \"first\" or \"fair\""));
  EXPECT_THAT(complaint("[claim.users]\nada = 'all'\n"), HasSubstr("c.toml:2: ada takes a whole number"));
  for (const char* line : {"order = 'fair'", "half_life = '1d'", "patience = '1h'", "history_directory = '/tmp'",
                           "users = {ada = 1}", "groups = {students = 1}"}) {
    EXPECT_THAT(complaint(std::string("[claim]\n") + line, site::Owner::kUser), HasSubstr("/etc/yoke/config.toml"))
        << line;
  }
}

TEST(ClaimConfig, AUserCannotLoosenIt) {
  const SiteConfig site{.lock_directory = "/run/gpus", .devices_per_user = 4, .longest = hours(24)};
  const auto looser = tightened(site, {.devices_per_user = 8, .longest = hours(48)});
  EXPECT_EQ(looser.devices_per_user, 4);
  EXPECT_EQ(looser.longest, hours(24));
  const auto stricter = tightened(site, {.devices_per_user = 2, .longest = hours(1)});
  EXPECT_EQ(stricter.devices_per_user, 4) << "for others";
  EXPECT_EQ(stricter.own_devices, 2);
  EXPECT_EQ(stricter.longest, hours(1));
  EXPECT_EQ(stricter.lock_directory, "/run/gpus");
  EXPECT_EQ(tightened({}, {.devices_per_user = 2}).own_devices, 2);
}

}  // namespace
}  // namespace yoke::claim
