#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <set>

#include "yoke/base/error.h"
#include "yoke/cli/command.h"
#include "yoke/cli/external.h"
#include "yoke/cli/spelling.h"
#include "yoke/cli/words.h"

namespace yoke::cli {
namespace {

std::vector<std::string> command_names(const CLI::App& app, const Installation& installation) {
  auto names = external_commands(installation);
  for (const auto* command : app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); })) {
    names.push_back(command->get_name());
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

bool is_command(const CLI::App& app, const std::string& name) {
  return !app.get_subcommands([&](const CLI::App* sub) { return sub->check_name(name); }).empty();
}

bool takes_value(const CLI::App& command, std::string_view name) {
  const auto* option = command.get_option_no_throw(std::string(name));
  return option != nullptr && option->get_items_expected_max() > 0;
}

/// CLI11's complaint in our words, with what was probably meant.
[[noreturn]] void rethrow(const CLI::ParseError& error, const CLI::App& command, const std::vector<std::string>& own) {
  const bool is_root = command.get_parent() == nullptr;
  const auto help = is_root ? std::string("`yoke --help`") : fmt::format("`yoke {} --help`", command.get_name());
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    for (const auto& word : own) {
      const auto name = word.substr(0, word.find('='));
      if (!name.starts_with("-") || command.get_option_no_throw(name) != nullptr) continue;
      throw Error(ErrorCode::kInvalidArgument, "unknown option {}{}; see {}", name,
                  did_you_mean(name, option_names(command)), help);
    }
  }
  throw Error(ErrorCode::kInvalidArgument, "{}; see {}", error.what(), help);
}

/// An empty value is mostly a variable of the shell that is not set, and would silently mean the default, or all. Those
/// that are empty by default in torchrun may be empty here; `yoke visible --set` answers for itself.
void refuse_empty_values(const std::string& command, const std::vector<std::string>& own) {
  static const std::set<std::string_view> kMayBeEmpty = {"--rdzv-endpoint",
                                                         "--rdzv-conf",
                                                         "--local-ranks-filter",
                                                         "--duplicate-stdout-filters",
                                                         "--duplicate-stderr-filters",
                                                         "--set"};
  const auto option = find_empty_value(own, [](std::string_view name) { return kMayBeEmpty.contains(name); });
  if (!option) return;
  throw Error(ErrorCode::kInvalidArgument,
              "{}: {}: the value is empty; is a variable of the shell not set? Leave it out if it is not meant",
              command, *option);
}

/// Parses and runs. REQUIRES: `words` are the words after `name`; it is empty for `yoke` itself.
void parse(CLI::App& app, const std::string& name, const std::vector<std::string>& words, Context& context) {
  CLI::App& command = name.empty() ? app : *app.get_subcommand(name);
  // A command with a PROGRAM gives it all words from the first that is not an option.
  const bool starts_programs = name == "run" || name == "train" || name == "visible" || name == "watch";
  auto own = words;
  if (starts_programs) {
    auto split = split_words(words, [&](std::string_view option) { return takes_value(command, option); });
    own = std::move(split.own);
    context.rest = std::move(split.rest);
  }
  refuse_empty_values(name, own);
  std::vector<std::string> reversed(own.rbegin(), own.rend());  // CLI11 takes them from the back
  if (!name.empty()) reversed.push_back(name);
  try {
    app.parse(reversed);
  } catch (const CLI::Success& help_or_version) {
    app.exit(help_or_version, context.out, context.out);
  } catch (const CLI::ParseError& error) {
    rethrow(error, command, own);
  }
}

}  // namespace

void add_commands(CLI::App& app, Context& context) {
  app.option_defaults()->take_last();  // for all commands: `yoke run $DEFAULTS -n 4`
  app.set_version_flag("--version", "yoke " YOKE_VERSION, "Print the version");
  app.set_help_flag("-h,--help", "Print this help");
  add_agent(app, context);
  add_bind(app, context);
  add_devices(app, context);
  add_doctor(app, context);
  add_jobs(app, context);
  add_kill(app, context);
  add_logs(app, context);
  add_metrics(app, context);
  add_ps(app, context);
  add_run(app, context);
  add_stack(app, context);
  add_stop(app, context);
  add_top(app, context);
  add_topo(app, context);
  add_train(app, context);
  add_visible(app, context);
  add_watch(app, context);
  add_new(app, context);
  add_completion(app, context);
  add_man(app, context);
  app.footer([&context] {
    std::string text = examples(
        "  yoke devices                        what is in this machine, and who uses it\n"
        "  yoke top                            the same, live\n"
        "  yoke doctor                         what is wrong with it, and what to do\n"
        "  yoke train fashion-mnist            train a network on every device of this machine\n"
        "  yoke run -n 2 -- ./train            start your own program, two ranks\n"
        "  yoke new my-training                begin a program of your own\n"
        "  yoke run --help                     more about one command");
    if (const auto names = external_commands(context.installation); !names.empty()) {
      text += fmt::format("\n\nAlso installed: {}", fmt::join(names, ", "));
    }
    return text;
  });
}

int run_command_line(std::vector<std::string> words, Context& context) {
  CLI::App app("Takes one neural network from one device to all of them", "yoke");
  app.require_subcommand(0, 1);
  add_commands(app, context);

  if (words.empty()) words = {"--help"};
  if (words[0] == "help")
    words = words.size() > 1 ? std::vector{words[1], std::string("--help")} : std::vector{std::string("--help")};
  // Options of `yoke` itself have no values, and end everything.
  if (words[0].starts_with("-")) {
    parse(app, "", words, context);
    return context.exit_code;
  }
  const std::string name = words[0];
  const auto command_line = words;
  words.erase(words.begin());
  if (!is_command(app, name)) {
    exec_external(name, words, context);
    throw Error(ErrorCode::kInvalidArgument, "no command `{}`{}; see `yoke --help`", name,
                did_you_mean(name, command_names(app, context.installation)));
  }
  context.words = command_line;
  parse(app, name, words, context);
  return context.exit_code;
}

}  // namespace yoke::cli
