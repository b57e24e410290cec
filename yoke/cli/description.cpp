#include "yoke/cli/description.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace yoke::cli {
namespace {

OptionDescription describe(const CLI::Option& option) {
  OptionDescription result;
  result.is_positional = option.get_positional();
  if (result.is_positional) {
    result.names.push_back(option.get_name(true));
  } else {
    for (const auto& name : option.get_snames()) result.names.push_back("-" + name);
    for (const auto& name : option.get_lnames()) result.names.push_back("--" + name);
  }
  if (option.get_items_expected_max() > 0) result.value = option.get_type_name();
  // A check appends what it checks: "SECONDS:FLOAT in [0 - 10]".
  result.value = result.value.substr(0, result.value.find(':'));
  result.text = option.get_description();
  result.default_value = option.get_default_str();
  return result;
}

}  // namespace

std::vector<std::string> OptionDescription::choices() const {
  std::vector<std::string> result;
  for (size_t begin = 0; begin < value.size();) {
    const auto end = std::min(value.find('|', begin), value.size());
    const auto choice = value.substr(begin, end - begin);
    if (!choice.empty() && choice.find_first_not_of("abcdefghijklmnopqrstuvwxyz-") == choice.npos) {
      result.push_back(choice);
    }
    begin = end + 1;
  }
  return result;
}

CommandDescription describe(const CLI::App& app) {
  CommandDescription result{app.get_name(), app.get_description(), app.get_footer(), {}, {}};
  while (result.footer.ends_with('\n')) result.footer.pop_back();
  for (const auto* option : app.get_options()) {
    if (!option->get_group().empty()) result.options.push_back(describe(*option));
  }
  for (const auto* command : app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); })) {
    result.commands.push_back(describe(*command));
  }
  return result;
}

}  // namespace yoke::cli
