#include "yoke/claim/config.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/claim/quantity.h"

namespace yoke::claim {
namespace {

constexpr size_t kMostBytes = 1 << 20;

class ConfigTable {
 public:
  ConfigTable(std::string name, ConfigOwner owner) : name_(std::move(name)), owner_(owner) {}

  void read(const std::string& key, const toml::node& value, SiteConfig& config) const {
    if (key == "lock_directory") {
      const auto path = std::filesystem::path(value.value<std::string>().value_or(""));
      if (owner_ == ConfigOwner::kUser) {
        throw Error(ErrorCode::kInvalidArgument,
                    "{}: lock_directory is for /etc/yoke/config.toml only, since all users must use the same one; "
                    "remove the line",
                    place(value));
      }
      if (!path.is_absolute()) refuse(value, "lock_directory takes an absolute path in quotes");
      config.lock_directory = path;
    } else if (key == "devices_per_user") {
      const auto number = value.value_exact<int64_t>();
      if (!number || *number < 0) refuse(value, "devices_per_user takes a whole number");
      config.devices_per_user = number;
    } else if (key == "longest") {
      config.longest = parse_length(value.value<std::string>().value_or(""));
      if (!config.longest) refuse(value, "longest takes a length of time in quotes, such as \"24h\"");
    } else {
      refuse(value, fmt::format("[claim] has no key {}; it has lock_directory, devices_per_user and longest", key));
    }
  }

 private:
  std::string place(const toml::node& value) const { return fmt::format("{}:{}", name_, value.source().begin.line); }
  [[noreturn]] void refuse(const toml::node& value, const std::string& why) const {
    throw Error(ErrorCode::kDataLoss, "{}: {}", place(value), why);
  }

  std::string name_;
  ConfigOwner owner_;
};

/// The text of a file that only root can have written; empty if there is none.
std::string read_of_site(const std::filesystem::path& path, bool is_chosen) {
  UniqueFd fd;
  try {
    fd = open_regular_file(path);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound && !is_chosen) return "";
    throw;
  }
  struct stat status {};
  if (fstat(fd.value(), &status) != 0) throw system_error(errno, path.string());
  const bool is_own = is_chosen && status.st_uid == geteuid();
  if ((status.st_uid != 0 && !is_own) || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    throw Error(ErrorCode::kPermissionDenied,
                "{} could have been written by others than root, so its limits are not used; `chown root {}` and "
                "`chmod 644 {}`",
                path.string(), path.string(), path.string());
  }
  return read_regular_file(path, kMostBytes);
}

std::string read_of_user(const std::filesystem::path& path) {
  try {
    return read_regular_file(path, kMostBytes);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) return "";
    throw;
  }
}

template <typename T>
std::optional<T> stricter(const std::optional<T>& a, const std::optional<T>& b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

}  // namespace

SiteConfig parse_config(const std::string& text, const std::string& name, ConfigOwner owner) {
  SiteConfig config;
  try {
    const auto root = toml::parse(text, name);
    const auto* const table = root["claim"].as_table();
    if (table == nullptr) {
      if (root.contains("claim")) throw Error(ErrorCode::kDataLoss, "{}: claim is not a table; write [claim]", name);
      return config;
    }
    const ConfigTable reader(name, owner);
    for (const auto& [key, value] : *table) reader.read(std::string(key.str()), value, config);
  } catch (const toml::parse_error& error) {
    throw Error(ErrorCode::kDataLoss, "{}:{}: {}", name, error.source().begin.line, error.description());
  }
  return config;
}

SiteConfig tightened(const SiteConfig& site, const SiteConfig& user) {
  auto result = site;
  result.devices_per_user = stricter(site.devices_per_user, user.devices_per_user);
  result.longest = stricter(site.longest, user.longest);
  return result;
}

SiteConfig read_config(const Environment& environment) {
  const auto chosen = environment.find("YOKE_CLAIM_CONFIG");
  const std::filesystem::path path = chosen.value_or("/etc/yoke/config.toml");
  const auto site = parse_config(read_of_site(path, chosen.has_value()), path.string(), ConfigOwner::kSite);
  const auto home = environment.value_or("HOME", "");
  const auto folder = environment.value_or("XDG_CONFIG_HOME", home.empty() ? "" : home + "/.config");
  if (folder.empty()) return site;
  const auto own = folder + "/yoke/config.toml";
  return tightened(site, parse_config(read_of_user(own), own, ConfigOwner::kUser));
}

}  // namespace yoke::claim
