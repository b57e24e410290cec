#include "yoke/container/config.h"

#include <algorithm>
#include <cctype>

#include "yoke/base/error.h"

namespace yoke::container {
namespace {

constexpr std::string_view kNameField = "{name}";

SiteRules parse_section(const site::Section& section) {
  section.check_keys({"default_image", "default_engine", "container_name", "image_name"});
  SiteRules rules;
  rules.default_image = section.text("default_image");
  if (const auto text = section.text("default_engine")) {
    rules.default_engine = parse_engine_kind(*text);
    if (!rules.default_engine) {
      section.refuse("default_engine", "default_engine takes \"podman\", \"docker\" or \"apptainer\"");
    }
  }
  for (const auto& [key, rule] :
       {std::pair{"container_name", &rules.container_name}, std::pair{"image_name", &rules.image_name}}) {
    section.for_site_only(key, "names must follow the same rule for all users");
    const auto text = section.text(key);
    if (!text) continue;
    if (text->find(kNameField) == text->npos) section.refuse(key, std::string(key) + " must have {name} in it");
    *rule = *text;
  }
  return rules;
}

/// The texts before and after {name}, with the user's name in them.
std::pair<std::string, std::string> around(std::string_view pattern, std::string_view user) {
  constexpr std::string_view kUserField = "{user}";
  std::string text(pattern);
  for (auto at = text.find(kUserField); at != text.npos; at = text.find(kUserField, at + user.size())) {
    text.replace(at, kUserField.size(), user);
  }
  const auto at = text.find(kNameField);
  return {text.substr(0, at), text.substr(at + kNameField.size())};
}

}  // namespace

SiteRules parse_rules(const site::Section& site, const site::Section& user) {
  auto rules = parse_section(site);
  const auto own = parse_section(user);
  if (own.default_image) rules.default_image = own.default_image;
  if (own.default_engine) rules.default_engine = own.default_engine;
  return rules;
}

SiteRules read_rules(const Environment& environment) {
  const auto config = site::read_config(environment);
  return parse_rules(config.site.section("container"), config.user.section("container"));
}

std::string name_part(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool is_allowed = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-';
    if (is_allowed || (!result.empty() && result.back() != '-')) result += is_allowed ? c : '-';
  }
  const auto begin = result.find_first_not_of("_.-");  // names begin with a letter or a digit
  return begin == result.npos ? "x" : result.substr(begin);
}

bool follows(std::string_view pattern, std::string_view user, std::string_view name) {
  const auto [before, after] = around(pattern, user);
  return name.size() > before.size() + after.size() && name.starts_with(before) && name.ends_with(after);
}

std::string named(std::string_view pattern, std::string_view user, std::string_view chosen) {
  if (follows(pattern, user, chosen)) return std::string(chosen);
  const auto [before, after] = around(pattern, user);
  return before + std::string(chosen) + after;
}

}  // namespace yoke::container
