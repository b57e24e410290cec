#include "yoke/container/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::container {
namespace {

constexpr std::string_view kNameField = "{name}";

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c); }

/// In the name of a container. Source: RestrictedNameChars of docker, NameRegex of podman.
bool is_allowed_in_name(char c) { return is_letter_or_digit(c) || c == '_' || c == '.' || c == '-'; }

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
  const struct {
    const char* key;
    std::string* rule;
    bool (*is_name)(std::string_view);
    const char* allowed;
  } patterns[] = {
      {"container_name", &rules.container_name, is_container_name, "letters, digits, '_', '.' and '-'"},
      {"image_name", &rules.image_name, is_image_name,
       "lower-case letters and digits, with '.', '_' or '-' between them, in parts between slashes"},
  };
  for (const auto& [key, rule, is_name, allowed] : patterns) {
    section.for_site_only(key, "names must follow the same rule for all users");
    const auto text = section.text(key);
    if (!text) continue;
    site::check_fields(section, key, {"{user}", kNameField});
    const auto at = text->find(kNameField);
    if (at == text->npos || at != text->rfind(kNameField)) {
      section.refuse(key, std::string(key) + " must have {name} in it once");
    }
    const auto tried = named(*text, "ada", "train");
    if (!is_name(tried)) {
      section.refuse(key, fmt::format("{} would make the name \"{}\", and engines take only {}", key, tried, allowed));
    }
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

bool is_container_name(std::string_view name) {
  return name.size() > 1 && is_letter_or_digit(name.front()) && std::ranges::all_of(name, is_allowed_in_name);
}

bool is_image_name(std::string_view name) {
  const auto parts = split(name, '/');
  const auto is_lower = [](char c) { return is_letter_or_digit(c) && (c < 'A' || c > 'Z'); };
  return !parts.empty() && std::ranges::all_of(parts, [&](std::string_view part) {
    const bool has_only_allowed = std::ranges::all_of(part, [&](char c) {
      return is_lower(c) || c == '.' || c == '_' || c == '-' || (c == ':' && part.data() == name.data());
    });
    return !part.empty() && has_only_allowed && is_lower(part.front()) && is_lower(part.back());
  });
}

std::string name_part(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool is_allowed = is_allowed_in_name(c);
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
