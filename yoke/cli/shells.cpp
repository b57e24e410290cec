// Completion scripts. Each knows two things that the tree does not say: words after the options of `yoke run` and
// its like are a command of the shell, and the recipes of `yoke train` are asked from `yoke train --list`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "yoke/cli/description.h"

namespace yoke::cli {
namespace {

std::vector<std::string> command_names(const CommandDescription& root) {
  std::vector<std::string> names;
  for (const auto& command : root.commands) names.push_back(command.name);
  return names;
}

std::vector<std::string> option_names(const CommandDescription& command) {
  std::vector<std::string> names;
  for (const auto& option : command.options) {
    if (!option.is_positional) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

std::vector<std::string> positional_choices(const CommandDescription& command) {
  for (const auto& option : command.options) {
    if (option.is_positional) return option.choices();
  }
  return {};
}

/// For single quotes in all three shells.
std::string quoted(std::string text) {
  for (size_t at = 0; (at = text.find('\'', at)) != text.npos; at += 4) text.replace(at, 1, "'\\''");
  return "'" + text + "'";
}

bool starts_any_program(const CommandDescription& command) {
  return command.name == "run" || command.name == "visible" || command.name == "watch";
}

constexpr auto kRecipes = "yoke train --list 2>/dev/null | cut -d' ' -f1";

std::string bash_case(const CommandDescription& command) {
  std::string values, flags;
  for (const auto& option : command.options) {
    if (option.is_positional || option.value.empty()) continue;
    values += fmt::format("        {}) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return ;;\n",
                          fmt::join(option.names, "|"), fmt::join(option.choices(), " "));
  }
  std::string words;
  if (starts_any_program(command)) {
    words = "COMPREPLY=($(compgen -c -f -- \"$cur\"))";
  } else if (command.name == "train") {
    words = fmt::format("COMPREPLY=($(compgen -W \"$({})\" -- \"$cur\"))", kRecipes);
  } else if (const auto choices = positional_choices(command); !choices.empty()) {
    words = fmt::format("COMPREPLY=($(compgen -W \"{}\" -- \"$cur\"))", fmt::join(choices, " "));
  } else {
    words = "COMPREPLY=($(compgen -f -- \"$cur\"))";
  }
  return fmt::format(
      "    {})\n"
      "      case $prev in\n{}      esac\n"
      "      if [[ $cur == -* ]]; then\n"
      "        COMPREPLY=($(compgen -W \"{}\" -- \"$cur\"))\n"
      "      else\n"
      "        {}\n"
      "      fi ;;\n",
      command.name, values, fmt::join(option_names(command), " "), words);
}

/// `[`, `]` and `:` have meanings in a specification of zsh's _arguments.
std::string zsh_escaped(std::string text) {
  for (size_t at = 0; (at = text.find_first_of("[]:\\", at)) != text.npos; at += 2) text.insert(at, 1, '\\');
  return text;
}

}  // namespace

std::string bash_completion(const CommandDescription& root) {
  std::string cases;
  for (const auto& command : root.commands) cases += bash_case(command);
  return fmt::format(
      "# bash completion for yoke; load with: source <(yoke completion bash)\n"
      "_yoke() {{\n"
      "  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command= i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    if [[ ${{COMP_WORDS[i]}} != -* ]]; then command=${{COMP_WORDS[i]}}; break; fi\n"
      "  done\n"
      "  case $command in\n"
      "    '') COMPREPLY=($(compgen -W \"{} {}\" -- \"$cur\")) ;;\n"
      "{}"
      "  esac\n"
      "}}\n"
      "complete -o filenames -F _yoke yoke\n",
      fmt::join(command_names(root), " "), fmt::join(option_names(root), " "), cases);
}

std::string zsh_completion(const CommandDescription& root) {
  std::string commands, cases;
  for (const auto& command : root.commands) {
    commands += fmt::format("    {}\n", quoted(command.name + ":" + zsh_escaped(command.text)));
    std::string arguments;
    for (const auto& option : command.options) {
      if (option.is_positional) continue;
      for (const auto& name : option.names) {
        std::string value;
        if (!option.value.empty())
          value = fmt::format(":{}:({})", zsh_escaped(option.value), fmt::join(option.choices(), " "));
        arguments += fmt::format(" \\\n        {}", quoted(name + "[" + zsh_escaped(option.text) + "]" + value));
      }
    }
    if (starts_any_program(command)) {
      arguments += " \\\n        '(-)1:program:_command_names -e' '*::argument:_normal'";
    } else if (command.name == "train") {
      arguments += fmt::format(" \\\n        \"1:recipe:($({}))\" '*:argument:_files'", kRecipes);
    } else if (const auto choices = positional_choices(command); !choices.empty()) {
      arguments += fmt::format(" \\\n        '1:choice:({})'", fmt::join(choices, " "));
    } else {
      arguments += " \\\n        '*:file:_files'";
    }
    cases += fmt::format("      {}) _arguments{} ;;\n", command.name, arguments);
  }
  return fmt::format(
      "#compdef yoke\n"
      "# zsh completion for yoke; put it into a folder of $fpath as _yoke\n"
      "_yoke() {{\n"
      "  local -a commands=(\n{}  )\n"
      "  local state\n"
      "  _arguments -C '1:command:->command' '*::argument:->argument'\n"
      "  case $state in\n"
      "    command) _describe command commands ;;\n"
      "    argument) case $words[1] in\n{}    esac ;;\n"
      "  esac\n"
      "}}\n"
      "if [[ $funcstack[1] == _yoke ]]; then _yoke \"$@\"; else compdef _yoke yoke; fi\n",
      commands, cases);
}

std::string fish_completion(const CommandDescription& root) {
  std::string lines =
      "# fish completion for yoke; put it into ~/.config/fish/completions/yoke.fish\ncomplete -c yoke -f\n";
  for (const auto& command : root.commands) {
    lines += fmt::format("complete -c yoke -n __fish_use_subcommand -a {} -d {}\n", command.name, quoted(command.text));
    const auto when = fmt::format("-n '__fish_seen_subcommand_from {}'", command.name);
    for (const auto& option : command.options) {
      if (option.is_positional) continue;
      lines += fmt::format("complete -c yoke {}", when);
      for (const auto& name : option.names) {
        lines += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (!option.value.empty())
        lines += fmt::format(" -x -a {}", quoted(fmt::format("{}", fmt::join(option.choices(), " "))));
      lines += fmt::format(" -d {}\n", quoted(option.text));
    }
    if (starts_any_program(command)) {
      lines += fmt::format("complete -c yoke {} -F -a '(__fish_complete_subcommand)'\n", when);
    } else if (command.name == "train") {
      lines += fmt::format("complete -c yoke {} -a \"({})\"\n", when, kRecipes);
    } else if (const auto choices = positional_choices(command); !choices.empty()) {
      lines += fmt::format("complete -c yoke {} -a {}\n", when, quoted(fmt::format("{}", fmt::join(choices, " "))));
    } else {
      lines += fmt::format("complete -c yoke {} -F\n", when);
    }
  }
  return lines;
}

}  // namespace yoke::cli
