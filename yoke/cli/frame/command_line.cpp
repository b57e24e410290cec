#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdlib>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/spelling.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/external.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/shell.h"
#include "yoke/cli/help/help.h"
#include "yoke/cli/help/values.h"
#include "yoke/cli/help/words.h"

namespace yoke::cli {
namespace {

/// Returns names for spelling hints: the programs in libexec, then the commands of the table.
std::vector<std::string> command_names(const Installation& installation) {
  auto names = external_commands(installation);
  for (const auto& command : command_table()) {
    if (!command.is_hidden) names.emplace_back(command.name);
  }
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

bool takes_value(const CLI::App& command, std::string_view name) {
  const auto* option = command.get_option_no_throw(std::string(name));
  return option != nullptr && option->get_items_expected_max() > 0;
}

/// Whether the option is one of torchrun's, which have variables.
bool is_torchruns(const CLI::Option& option) { return option.get_envname().starts_with("PET_"); }

/// Returns the option of torchrun that `name` abbreviates; other names are returned unchanged. Like torchrun's
/// argparse, but "--nproc", which fits the two spellings of one option, is not ambiguous here.
/// Errors  kInvalidArgument: several options begin with `name`.
std::string whole_name(const CLI::App& command, std::string_view name) {
  const std::string typed(name);
  if (command.get_option_no_throw(typed) != nullptr) return typed;
  std::vector<std::string> found;
  for (const auto* option : command.get_options()) {
    if (!is_torchruns(*option)) continue;
    for (const auto& one : option->get_lnames()) {
      if (("--" + one).starts_with(typed)) found.push_back("--" + one);
    }
  }
  if (found.size() > 1) refuse("{} may be short for {}; write more of it", typed, fmt::join(found, ", "));
  return found.empty() ? typed : found.front();
}

/// Where what an option that does not exist asks for is; empty if nobody knows.
std::string elsewhere(const CLI::App& command, std::string_view name) {
  if (command.get_name() != "run" || name != "--watch") return "";
  return ": a program with a train::Run says by itself what slows its steps, after each epoch (docs/training-loop.md), "
         "and `yoke watch` runs a program and tells how well it used its devices";
}

/// Returns a message about the words that `command` does not know, with a spelling hint for an option.
std::string unexpected_words(const CLI::App& command, const std::vector<std::string>& own) {
  for (const auto& word : own) {
    const auto name = word.substr(0, word.find('='));
    if (!name.starts_with("-") || command.get_option_no_throw(name) != nullptr) continue;
    const auto place = elsewhere(command, name);
    return fmt::format("unknown option {}{}", name, place.empty() ? did_you_mean(name, option_names(command)) : place);
  }
  return fmt::format("unexpected argument: {}", fmt::join(command.remaining(), " "));
}

/// Returns the flag that was given a value, "--json" for {"--json=x"}, or an empty string.
std::string flag_with_value(const CLI::App& command, const std::vector<std::string>& own) {
  for (const auto& word : own) {
    const auto name = word.substr(0, word.find('='));
    if (name.size() < word.size() && command.get_option_no_throw(name) != nullptr && !takes_value(command, name)) {
      return name;
    }
  }
  return "";
}

bool has_variable(const CLI::Option& option) {
  const char* const value = option.get_envname().empty() ? nullptr : std::getenv(option.get_envname().c_str());
  return value != nullptr && *value != '\0';
}

/// Returns the option's name as the user wrote it: "-n" for {"-n4x"}, although CLI11 reports "--nproc-per-node". If an
/// environment variable set the option, returns the variable's name, such as PET_NPROC_PER_NODE.
std::string as_written(const std::string& name, const CLI::App& command, const std::vector<std::string>& own) {
  const auto* option = command.get_option_no_throw(name);
  if (option == nullptr) return name;
  for (const auto& word : own) {
    const auto written = word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
    if (written.starts_with('-') && command.get_option_no_throw(written) == option) return written;
  }
  return has_variable(*option) ? option->get_envname() : name;
}

/// If an environment variable set the option, replaces the option's name at the start of `message` by its name.
std::string as_written_first(const std::string& message, const CLI::App& command, const std::vector<std::string>& own) {
  const auto name = message.substr(0, message.find_first_not_of("-abcdefghijklmnopqrstuvwxyz"));
  return name.starts_with('-') ? as_written(name, command, own) + message.substr(name.size()) : message;
}

/// Rewords an error message of CLI11, and adds what the user probably meant.
std::string in_our_words(const CLI::ParseError& error, const CLI::App& command, const std::vector<std::string>& own) {
  const std::string text = error.what();
  const auto name = text.substr(0, text.find(": "));
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return unexpected_words(command, own);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {  // it comes first, perhaps because of a misspelling
    const auto is_unknown = [&](const std::string& word) {
      return word.starts_with("--") && command.get_option_no_throw(word.substr(0, word.find('='))) == nullptr;
    };
    if (std::ranges::any_of(own, is_unknown)) return unexpected_words(command, own);
  }
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr && name.size() < text.size()) {
    return fmt::format("{} {}", as_written(name, command, own),
                       text.substr(name.size() + 2));  // values.cpp writes such messages as "VALUE: give ..."
  }
  const auto* option = command.get_option_no_throw(name);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && option != nullptr && option->count() == 0) {
    return fmt::format("{} needs a value: {}", as_written(name, command, own), option->get_type_name());
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    if (const auto flag = flag_with_value(command, own); !flag.empty()) return flag + " takes no value";
    for (const auto* flag : command.get_options()) {
      if (flag->get_items_expected_max() > 0 || !has_variable(*flag) || text.find(flag->get_name()) == text.npos)
        continue;
      return fmt::format("{} {}: give 1 or 0", flag->get_envname(), std::getenv(flag->get_envname().c_str()));
    }
  }
  return text;
}

[[noreturn]] void rethrow(const CLI::ParseError& error, const CLI::App& command, const std::vector<std::string>& own,
                          const std::vector<std::string>& path) {
  refuse("{}; see `yoke {}{}--help`", in_our_words(error, command, own), fmt::join(path, " "), path.empty() ? "" : " ");
}

/// Whether the command has an argument PROGRAM, which takes the first word that is not an option and all later words.
bool starts_program(const CLI::App& command) {
  const auto options = command.get_options();
  return std::ranges::any_of(options,
                             [](const CLI::Option* option) { return option->get_type_name() == kProgramArguments; });
}

/// What the user may have meant by a word that is not a command: a program to start, or a command spelled differently.
std::string meant_by(const std::string& name, const std::vector<std::string>& commands) {
  const bool is_program = name.find('/') != name.npos || name.ends_with(".py");
  return is_program ? fmt::format(" (did you mean `yoke run {}`?)", name) : did_you_mean(name, commands);
}

/// An empty value usually comes from a shell variable that is not set. Without this error, it would silently select the
/// default, or everything. Options that are empty by default in torchrun may be empty here. `yoke visible --set` checks
/// for empty values itself, and CLI11 reports unknown options.
void refuse_empty_values(const CLI::App& command, const std::vector<std::string>& own) {
  static const std::set<std::string_view> kMayBeEmpty = {"--rdzv-endpoint",
                                                         "--rdzv-conf",
                                                         "--local-ranks-filter",
                                                         "--log-line-prefix-template",
                                                         "--duplicate-stdout-filters",
                                                         "--duplicate-stderr-filters",
                                                         "--set",
                                                         "--gpu"};
  const auto option = find_empty_value(own, [&](std::string_view name) {
    const bool is_unknown = name.starts_with('-') && command.get_option_no_throw(std::string(name)) == nullptr;
    return is_unknown || kMayBeEmpty.contains(name);
  });
  if (!option) return;
  refuse("{}: the value is empty, perhaps because a shell variable is not set; give a value, or leave the option out",
         *option);
}

/// CLI11 takes "-5s" for a number, and gives it to a positional argument. Without this error it would be dropped where
/// that argument is a program, and `--wait -5s` would wait without a limit.
void refuse_numeric_options(const CLI::App& command, const std::vector<std::string>& own, const std::string& name) {
  const CLI::Option* taker = nullptr;  // the word may be its value
  for (const auto& word : own) {
    if (word == "--") return;
    const bool is_numeric = word.size() > 1 && word[0] == '-' && word[1] >= '0' && word[1] <= '9';
    if (word.starts_with('-') && !(is_numeric && taker != nullptr)) {
      if (is_numeric && command.get_option_no_throw(word.substr(0, 2)) == nullptr) {
        refuse("unknown option {}; see `yoke {} --help`", word, name);
      }
      taker = takes_value(command, word) ? command.get_option_no_throw(word) : nullptr;
    } else if (taker != nullptr && taker->get_items_expected_max() == 1) {
      taker = nullptr;
    }
  }
}

/// The actions of a command that has several, such as `yoke env create` and `yoke env list`.
std::vector<std::string> action_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const auto* action : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(action->get_name());
  }
  return names;
}

/// Finds a command of `yoke`, or an action of a command, by its name; null if there is none.
CLI::App* find_below(CLI::App& command, const std::string& name) {
  const auto found = command.get_subcommands([&](const CLI::App* one) { return one->check_name(name); });
  return found.empty() ? nullptr : found.front();
}

/// Errors  kInvalidArgument: `words`, which follow the command, do not begin with one of its actions.
void require_action(const CLI::App& command, const std::vector<std::string>& words) {
  if (!words.empty() && words[0].starts_with("-")) return;
  const auto& name = command.get_name();
  const auto actions = action_names(command);
  if (words.empty()) refuse("say what to do: {}; see `yoke {} --help`", fmt::join(actions, ", "), name);
  refuse("no command `yoke {} {}`{}; see `yoke {} --help`", name, words[0], did_you_mean(words[0], actions), name);
}

/// Finds the command that `words` begin with, and its action if it has actions. Removes their names from `words`.
CLI::App& find_parsed(CLI::App& app, std::vector<std::string>& words) {
  auto* command = app.get_subcommand(words[0]);
  words.erase(words.begin());
  while (!words.empty()) {
    auto* const action = find_below(*command, words[0]);
    if (action == nullptr) break;
    words.erase(words.begin());
    command = action;
  }
  if (command->get_require_subcommand_min() > 0) require_action(*command, words);
  return *command;
}

/// Parses and runs the command that `words` begin with, or `yoke` itself if they begin with an option.
void parse(CLI::App& app, std::vector<std::string> words, Context& context) {
  const bool has_name = !words[0].starts_with("-");
  CLI::App& command = has_name ? find_parsed(app, words) : app;
  std::vector<std::string> path;  // "env", "create"
  for (const auto* part = &command; part->get_parent() != nullptr; part = part->get_parent()) {
    path.insert(path.begin(), part->get_name());
  }
  context.command = fmt::format("{}", fmt::join(path, " "));
  auto own = words;
  bool has_program = false;  // beyond doubt: after an unknown option, a word may be its value
  if (starts_program(command)) {
    auto split = split_words(words, {.takes_value = [&](std::string_view name) { return takes_value(command, name); },
                                     .whole_name = [&](std::string_view name) { return whole_name(command, name); },
                                     .has_optional_time =
                                         [&](std::string_view name) {
                                           const auto* option = command.get_option_no_throw(std::string(name));
                                           return option != nullptr && option->get_type_name() == "[TIMEOUT]";
                                         }});
    own = std::move(split.own);
    context.rest = std::move(split.rest);
    has_program = split.has_dashes || context.rest.size() > 1;
    const bool is_like_torchrun =
        std::ranges::any_of(command.get_options(), [](const CLI::Option* option) { return is_torchruns(*option); });
    // Like torchrun, which drops a "--" right after the program, but not a second one.
    if (is_like_torchrun && !split.has_dashes && context.rest.size() > 1 && context.rest[1] == "--") {
      context.rest.erase(context.rest.begin() + 1);
    }
  }
  const auto tell_shell = [&] {
    if (isatty(STDOUT_FILENO) == 0 && is_for_eval(context.command, own, has_program)) {
      context.out << failure_to_shell(exit_status(ErrorCode::kInvalidArgument));
    }
  };
  std::vector<std::string> reversed(own.rbegin(), own.rend());  // CLI11 expects the words in reverse order
  reversed.insert(reversed.end(), path.rbegin(), path.rend());
  try {
    refuse_empty_values(command, own);
    refuse_numeric_options(command, own, context.command);
  } catch (const Error&) {
    tell_shell();
    throw;
  }
  try {
    app.parse(reversed);
  } catch (const CLI::Success& help_or_version) {
    app.exit(help_or_version, context.out, context.out);
  } catch (const CLI::ParseError& error) {
    tell_shell();
    rethrow(error, command, own, path);
  } catch (const Error& error) {
    throw Error(error.code(), "{}", as_written_first(error.what(), command, own));
  }
}

/// Adds the options of `yoke` and all commands to `app`. Only the first command that the words name gets its options.
void build(CLI::App& app, Context& context) {
  app.require_subcommand(0, 1);
  app.option_defaults()->take_last();  // of a repeated option, as in `yoke run $DEFAULTS -n 4`, the last counts
  app.set_version_flag("-V,--version", "yoke " YOKE_VERSION, "Print the version");
  app.set_help_flag("-h,--help", "Print this help");
  const auto is_command = [](const std::string& word) { return find_command(word) != nullptr; };
  const auto used = std::ranges::find_if(context.words, is_command);  // also in `yoke help run`, `yoke --help run`
  add_commands(app, context, used == context.words.end() ? nullptr : find_command(*used));
  check_values(app);
  app.footer([&context] {
    std::string text = examples(
        "  yoke devices                        what is in this machine, and who uses it\n"
        "  yoke top                            the same, live\n"
        "  yoke doctor                         what is wrong with it, and what to do\n"
        "  yoke train fashion-mnist            train a network on every device of this machine\n"
        "  yoke run -n 2 -- ./train            start your own program, two ranks\n"
        "  yoke new my-training                begin a program of your own\n"
        "  yoke run --help                     more about one command\n"
        "\n"
        "Exit status of errors: 64 arguments that yoke does not understand, 65 a damaged file, 66 a file, job or "
        "host that does not exist, 69 something must be done first, 70 a defect of yoke, 75 a failure that may be "
        "temporary, 77 a missing permission, 124 a timeout. A program's own status is passed on.");
    if (const auto names = external_commands(context.installation); !names.empty()) {
      text += fmt::format("\n\nAlso installed: {}", fmt::join(names, ", "));
    }
    return text;
  });
  set_help_width(app, output_width(context));
}

/// The words for which `yoke help run` stands: "run", "--help".
std::vector<std::string> words_of_help(CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> result;
  auto* command = &app;
  for (size_t i = 1; i < words.size() && command != nullptr && (i == 1 || !action_names(*command).empty()); ++i) {
    result.push_back(words[i]);
    command = find_below(*command, words[i]);
  }
  result.emplace_back("--help");
  return result;
}

}  // namespace

int run_command_line(std::vector<std::string> words, Context& context) {
  context.words = words;
  CLI::App app("Takes one neural network from one device to all of them", "yoke");
  build(app, context);
  if (words.empty()) words = {"--help"};
  if (words[0] == "help") words = words_of_help(app, words);
  // An option of `yoke` itself, such as --version, has no value, and no command follows it.
  if (words[0].starts_with("-")) {
    parse(app, words, context);
    return context.exit_code;
  }
  const std::string name = words[0];
  words.erase(words.begin());
  const auto* command = find_command(name);
  if (command == nullptr) {
    exec_external(name, words, context);
    refuse("no command `{}`{}; see `yoke --help`", name, meant_by(name, command_names(context.installation)));
  }
  context.command = command->name;
  if (!command->object.empty() && !words.empty() && words[0] == command->object) words.erase(words.begin());
  if (command->rewrite != nullptr) words = command->rewrite(words);
  words.insert(words.begin(), name);
  parse(app, words, context);
  return context.exit_code;
}

}  // namespace yoke::cli
