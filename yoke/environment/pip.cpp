#include "yoke/environment/pip.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::environment {
namespace {

// Options of `pip install` (pip 20 to 26) that decide where packages go, for which machine, or what else is installed
// or left out. `yoke env create` says these itself.
constexpr std::string_view kIgnored =
    "abi dependency-group dry-run editable force-reinstall group ignore-installed implementation no-deps "
    "no-dependencies platform prefix python python-version report requirement requirements-from-script root src target "
    "upgrade upgrade-strategy user";

std::string variable_of(std::string_view setting) {
  auto name = "PIP_" + upper_case(setting);
  std::ranges::replace(name, '-', '_');
  return name;
}

bool is_ignored(std::string_view setting) {
  const auto words = words_of(kIgnored);
  return std::ranges::find(words, setting) != words.end();
}

}  // namespace

PipFacts parse_pip_facts(std::string_view json) {
  try {
    const auto object = nlohmann::json::parse(json);
    PipFacts facts;
    object.at("settings").get_to(facts.settings);
    object.at("has_hashes").get_to(facts.has_hashes);
    object.at("versions").get_to(facts.versions);
    object.at("unmet").get_to(facts.unmet);
    object.at("unread").get_to(facts.unread);
    if (!object.at("torch_minors").is_null()) facts.torch_minors = object.at("torch_minors").get<std::vector<int>>();
    for (const auto& one : object.at("named")) {
      facts.named.push_back({.package = one.at("package"),
                             .specifier = one.at("specifier"),
                             .where = one.at("where"),
                             .decided = one.at("decided"),
                             .is_constraint = one.at("is_constraint")});
    }
    return facts;
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kInternal, "yoke_environment.py: {}", error.what());
  }
}

const Named* find_decided(const PipFacts& facts, std::string_view package) {
  const auto found = std::ranges::find_if(
      facts.named, [&](const Named& one) { return one.package == package && !one.decided.empty(); });
  return found == facts.named.end() ? nullptr : &*found;
}

std::vector<std::string> ignored_settings(const PipSettings& settings) {
  std::vector<std::string> ignored;
  for (const auto& [name, value] : settings) {
    if (is_ignored(name)) ignored.push_back(name);
  }
  return ignored;
}

Environment pip_environment(Environment environment, const PipSettings& settings, Indices indices) {
  environment.erase_if([](const auto& name) { return name.starts_with("PIP_"); });
  environment.set("PIP_CONFIG_FILE", "/dev/null");  // pip then reads no configuration file at all
  for (const auto& [name, value] : settings) {
    const bool is_other_index = name == "extra-index-url" || name == "find-links";
    if (is_ignored(name) || name == "config-file") continue;
    if (is_other_index && indices == Indices::kOnlyGiven && !settings.contains("no-index")) continue;
    environment.set(variable_of(name), value);
  }
  return environment;
}

}  // namespace yoke::environment
