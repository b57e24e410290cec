#include "yoke/cli/help/description.h"

#include <CLI/App.hpp>
#include <algorithm>

#include "yoke/base/text.h"
#include "yoke/cli/command.h"

namespace yoke::cli {
namespace {

OptionDescription describe_option(const CLI::Option& option) {
  OptionDescription result;
  result.is_positional = option.get_positional();
  if (result.is_positional) {
    result.names.push_back(option.get_name(true));
  } else {
    for (const auto& name : option.get_snames()) result.names.push_back("-" + name);
    for (const auto& name : option.get_lnames()) result.names.push_back("--" + name);
  }
  if (option.get_items_expected_max() > 0) result.value = option.get_type_name();
  result.value_is_optional = option.get_items_expected_max() > 0 && option.get_items_expected_min() == 0;
  result.is_hidden = option.get_group().empty();
  result.takes_rest = result.is_positional && result.value == kProgramArguments;
  result.text = option.get_description();
  result.default_value = option.get_default_str();
  return result;
}

}  // namespace

std::vector<std::string> OptionDescription::choices() const {
  std::vector<std::string> result;
  for (const auto choice : split(value, '|')) {
    const bool is_literal = choice.find_first_not_of("abcdefghijklmnopqrstuvwxyz-") == choice.npos;
    if (!choice.empty() && is_literal) result.emplace_back(choice);
  }
  return result;
}

const OptionDescription* CommandDescription::find_option(std::string_view wanted) const {
  const auto found = std::ranges::find_if(options, [&](const OptionDescription& option) {
    return !option.is_positional && std::ranges::find(option.names, wanted) != option.names.end();
  });
  return found == options.end() ? nullptr : &*found;
}

const CommandDescription* CommandDescription::find_command(std::string_view wanted) const {
  const auto found = std::ranges::find_if(commands, [&](const CommandDescription& command) {
    return command.name == wanted || std::ranges::find(command.aliases, wanted) != command.aliases.end();
  });
  return found == commands.end() ? nullptr : &*found;
}

std::vector<const OptionDescription*> CommandDescription::positionals() const {
  std::vector<const OptionDescription*> result;
  for (const auto& option : options) {
    if (option.is_positional) result.push_back(&option);
  }
  return result;
}

bool CommandDescription::starts_program() const {
  const auto words = positionals();
  return !words.empty() && words.front()->takes_rest;
}

CommandDescription describe(const CLI::App& app) {
  CommandDescription result{app.get_name(), app.get_description(), app.get_footer(), {}, {}, app.get_aliases()};
  const auto* const parent = app.get_parent();
  if (parent != nullptr) result.path = (parent->get_parent() == nullptr ? "" : parent->get_name() + " ") + result.name;
  if (const auto* const command = yoke::cli::find_command(result.path)) result.object = command->object;
  while (result.footer.ends_with('\n')) result.footer.pop_back();
  for (const auto* option : app.get_options()) {
    result.options.push_back(describe_option(*option));
  }
  for (const auto* command : app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); })) {
    result.commands.push_back(describe(*command));
  }
  return result;
}

}  // namespace yoke::cli
