#include "yoke/claim/config.h"

namespace yoke::claim {

SiteConfig parse_config(const site::Section& section) {
  section.check_keys({"lock_directory", "devices_per_user", "longest"});
  section.for_site_only("lock_directory", "all users must use the same one");
  SiteConfig config;
  if (const auto path = section.text("lock_directory")) {
    config.lock_directory = *path;
    if (!config.lock_directory->is_absolute()) {
      section.refuse("lock_directory", "lock_directory takes an absolute path in quotes");
    }
  }
  config.devices_per_user = section.count("devices_per_user");
  config.longest = section.length("longest");
  return config;
}

SiteConfig tightened(const SiteConfig& site, const SiteConfig& user) {
  auto result = site;
  result.devices_per_user = site::stricter(site.devices_per_user, user.devices_per_user);
  result.longest = site::stricter(site.longest, user.longest);
  return result;
}

SiteConfig read_config(const Environment& environment) {
  const auto config = site::read_config(environment);
  return tightened(parse_config(config.site.section("claim")), parse_config(config.user.section("claim")));
}

}  // namespace yoke::claim
