#include "yoke/claim/config.h"

namespace yoke::claim {
namespace {

std::optional<std::filesystem::path> folder_of(const site::Section& section, const char* key) {
  const auto text = section.text(key);
  if (!text) return std::nullopt;
  if (!text->starts_with('/')) section.refuse(key, std::string(key) + " takes an absolute path in quotes");
  return *text;
}

std::map<std::string, int64_t> limits_by_name(const site::Section& section) {
  std::map<std::string, int64_t> result;
  for (const auto& name : section.keys()) result[name] = section.count(name).value_or(0);
  return result;
}

Order order_of(const site::Section& section) {
  const auto text = section.text("order").value_or("first");
  if (text != "first" && text != "fair") section.refuse("order", "order takes \"first\" or \"fair\"");
  return text == "fair" ? Order::kFair : Order::kFirst;
}

}  // namespace

SiteConfig parse_config(const site::Section& section) {
  section.check_keys({"lock_directory", "devices_per_user", "longest", "users", "groups", "history_directory", "order",
                      "half_life", "patience", "reservations_per_user", "reserve_ahead", "reserve_longest",
                      "reserve_grace", "idle_warn", "idle_end"});
  for (const char* key : {"lock_directory", "history_directory", "order", "half_life", "patience",
                          "reservations_per_user", "reserve_ahead", "reserve_longest", "reserve_grace"}) {
    section.for_site_only(key, "all users must use the same one");
  }
  for (const char* key : {"users", "groups"}) section.for_site_only(key, "a user's own limit is devices_per_user");
  SiteConfig config;
  config.lock_directory = folder_of(section, "lock_directory");
  config.history_directory = folder_of(section, "history_directory");
  config.users = limits_by_name(section.section("users"));
  config.groups = limits_by_name(section.section("groups"));
  config.order = order_of(section);
  config.half_life = section.length("half_life").value_or(config.half_life);
  config.patience = section.length("patience").value_or(config.patience);
  config.reservations_per_user = section.count("reservations_per_user").value_or(config.reservations_per_user);
  config.reserve_ahead = section.length("reserve_ahead").value_or(config.reserve_ahead);
  config.reserve_longest = section.length("reserve_longest").value_or(config.reserve_longest);
  config.reserve_grace = section.length("reserve_grace").value_or(config.reserve_grace);
  config.devices_per_user = section.count("devices_per_user");
  config.longest = section.length("longest");
  config.idle = {.warn = section.length("idle_warn"), .end = section.length("idle_end")};
  return config;
}

std::string limiter(bool is_own) {
  return is_own ? "your own configuration (~/.config/yoke/config.toml)" : "this site";
}

SiteConfig tightened(const SiteConfig& site, const SiteConfig& user) {
  auto result = site;
  result.own_devices = user.devices_per_user;
  result.longest = site::stricter(site.longest, user.longest);
  result.is_own_longest = result.longest != site.longest;
  result.idle.warn = site::stricter(site.idle.warn, user.idle.warn);
  result.idle.end = site::stricter(site.idle.end, user.idle.end);
  result.is_own_idle_end = result.idle.end != site.idle.end;
  return result;
}

SiteConfig read_config(const Environment& environment, site::LeftOut* left_out) {
  for (;;) {
    try {
      const auto config = site::read_config(environment, {}, left_out);
      auto result = tightened(parse_config(config.site.section("claim")), parse_config(config.user.section("claim")));
      result.is_decided = config.is_decided;
      result.is_of_user = config.is_of_user;
      return result;
    } catch (const LineError& error) {
      if (left_out == nullptr || !left_out->add(error)) throw;
    }
  }
}

}  // namespace yoke::claim
