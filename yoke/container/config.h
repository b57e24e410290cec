// yoke/container/config.h -- what a site decides about containers: the table [container] of /etc/yoke/config.toml.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "yoke/container/engine.h"
#include "yoke/site/config.h"

namespace yoke::container {

struct SiteRules {
  std::optional<std::string> default_image;
  std::optional<EngineKind> default_engine;
  /// Patterns of names. {user} stands for the user's name, and {name} for what the user may choose.
  std::string container_name = "{user}_{name}";
  std::string image_name = "{user}/{name}";

  bool operator==(const SiteRules&) const = default;
};

/// Errors  kDataLoss, with file and line, also for a pattern by which no container or image could be named;
///         kInvalidArgument: a user's file sets a rule that only a site may.
SiteRules parse_rules(const site::Section& site, const site::Section& user);

/// Errors  those of site::read_config() and parse_rules().
SiteRules read_rules(const Environment& environment);

/// Whether engines take it as the name of a container: letters, digits, '_', '.' and '-', of which the first is a
/// letter or a digit, and at least two.
bool is_container_name(std::string_view name);

/// Whether engines take it as the name of an image, without a tag: each part between slashes has lower-case letters and
/// digits, with '.', '_' and '-' between them; the first part may also be a registry with a port.
bool is_image_name(std::string_view name);

/// `text` with each character that names of containers and images cannot have replaced by a dash, and in lower case
/// for images.
std::string name_part(std::string_view text);

/// The name that follows the pattern: `chosen` itself if it does already, otherwise the pattern with `chosen` in it.
std::string named(std::string_view pattern, std::string_view user, std::string_view chosen);

/// Whether `name` follows the pattern.
bool follows(std::string_view pattern, std::string_view user, std::string_view name);

}  // namespace yoke::container
