// Help, completion, man pages and docs name the commands of the table, and no others.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/App.hpp>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include "tests/support/message_of.h"
#include "yoke/base/file.h"
#include "yoke/cli/command.h"
#include "yoke/cli/help/complete.h"
#include "yoke/cli/help/description.h"

namespace yoke::cli {
namespace {

/// The command tree of `yoke`, for an installation without programs and recipes.
struct Tree {
  Tree() { add_commands(app, context, find_command("man")); }

  std::ostringstream out;
  Context context{out, {}, {}, {}};
  CLI::App app{"", "yoke"};
};

std::vector<std::string> visible_names() {
  std::vector<std::string> names;
  for (const auto& command : command_table()) {
    if (!command.is_hidden) names.emplace_back(command.name);
  }
  return names;
}

/// The command names in `text`: words that follow "yoke ", as in "`yoke run`".
std::set<std::string> names_in(const std::string& text, const std::regex& pattern) {
  std::set<std::string> names;
  for (auto match = std::sregex_iterator(text.begin(), text.end(), pattern); match != std::sregex_iterator(); ++match) {
    names.insert((*match)[1]);
  }
  return names;
}

TEST(Commands, AreRegisteredAsTheTableSays) {
  const Tree tree;
  const auto registered = tree.app.get_subcommands([](const CLI::App*) { return true; });
  ASSERT_EQ(registered.size(), command_table().size());
  for (size_t i = 0; i < registered.size(); ++i) {
    const auto& command = command_table()[i];
    EXPECT_EQ(registered[i]->get_name(), command.name);
    EXPECT_EQ(registered[i]->get_description(), command.summary);
    EXPECT_EQ(registered[i]->get_group().empty(), command.is_hidden) << command.name;
    EXPECT_EQ(registered[i]->get_aliases().size(), command.alias.empty() ? 0U : 1U) << command.name;
    EXPECT_EQ(find_command(command.name), &command) << "two commands have this name";
    if (!command.alias.empty()) {
      EXPECT_EQ(find_command(command.alias), &command);
    }
  }
  EXPECT_EQ(find_command("no-such-command"), nullptr);
  EXPECT_EQ(find_command(""), nullptr);
}

TEST(Commands, HaveOptionsOnlyWhereTheyAreUsed) {
  for (const auto* used : {"", "run", "env", "complete", "man"}) {
    std::ostringstream out;
    Context context{out, {}, {}, {}};
    CLI::App app{"", "yoke"};
    add_commands(app, context, find_command(used));
    for (const auto* name : {"run", "devices", "env"}) {
      const auto* command = app.get_subcommand(name);
      const bool is_whole = command->get_options().size() > 1 || command->get_require_subcommand_min() > 0;
      const bool describes_all = std::string_view(used) == "complete" || std::string_view(used) == "man";
      EXPECT_EQ(is_whole, describes_all || std::string_view(used) == name) << used << " " << name;
    }
  }
}

/// The words that lead to each command, and to each action of those that have some.
std::vector<std::vector<std::string>> all_paths() {
  std::vector<std::vector<std::string>> paths;
  for (const auto& command : command_table()) {
    std::ostringstream out;
    Context context{out, {}, {}, {}};
    CLI::App app{"", "yoke"};
    add_commands(app, context, &command);
    const auto name = std::string(command.name);
    const auto actions = app.get_subcommand(name)->get_subcommands([](const CLI::App*) { return true; });
    for (const auto* action : actions) paths.push_back({name, action->get_name()});
    if (actions.empty()) paths.push_back({name});
  }
  return paths;
}

TEST(Commands, RefuseOptionsThatLookLikeNegativeNumbers) {
  const auto paths = all_paths();
  EXPECT_GT(paths.size(), command_table().size());
  for (const auto& path : paths) {
    // Their words are those of another command line, or signals as `kill` has them.
    if (path[0] == "complete" || path[0] == "kill") continue;
    for (const std::string option : {"-1s", "-5"}) {
      auto words = path;
      words.insert(words.end(), {option, "--", "true"});
      std::ostringstream out;
      Context context{out, {}, {}, {}};
      EXPECT_EQ(test::message_of([&] { run_command_line(words, context); }, ErrorCode::kInvalidArgument),
                fmt::format("unknown option {}; see `yoke {} --help`", option, fmt::join(path, " ")));
    }
  }
}

TEST(Commands, TakeANegativeNumberAsTheValueOfAnOption) {
  std::ostringstream out;
  Context context{out, {}, {}, {}};
  EXPECT_THAT(test::message_of(
                  [&] {
                    run_command_line({"claim", "-n", "-1", "--", "true"}, context);
                  },
                  ErrorCode::kInvalidArgument),
              testing::HasSubstr("-n -1: give 1 to 128"));
}

TEST(Commands, AreAllInHelpCompletionAndManPages) {
  const Tree tree;
  const auto root = describe(tree.app);
  std::vector<std::string> described, completed;
  for (const auto& command : root.commands) described.push_back(command.name);
  EXPECT_EQ(described, visible_names());
  const auto nothing = [] { return std::vector<CompletionWord>(); };
  for (const auto& offer : complete(root, {""}, {nothing, nothing, nothing}).words) completed.push_back(offer.word);
  EXPECT_EQ(completed, visible_names());
  const auto page = man_page(root, root, "1");
  const auto help = tree.app.help();
  for (const auto& command : command_table()) {
    const auto names = fmt::format("{}{}{}", command.name, command.alias.empty() ? "" : ", ", command.alias);
    EXPECT_EQ(help.find(fmt::format("\n  {} ", names)) == help.npos, command.is_hidden) << command.name;
    EXPECT_EQ(page.find(fmt::format(".TP\n\\fB{}\\fR\n", command.name)) == page.npos, command.is_hidden)
        << command.name;
  }
}

TEST(Commands, HelpNamesOnlyThoseThatExist) {
  const Tree tree;
  const std::regex mentioned("(?:`|\n  |&& |\\$\\(|-- )yoke ([a-z]+)");
  for (const auto* command : tree.app.get_subcommands([](const CLI::App*) { return true; })) {
    for (const auto& name : names_in('\n' + command->help(), mentioned)) {
      EXPECT_NE(find_command(name), nullptr) << command->get_name() << " names `yoke " << name << "`";
    }
  }
}

TEST(Commands, ThePagesNameAllOfThemAndNoOthers) {
  const std::filesystem::path repository = YOKE_PAGES;
  std::set<std::string> named;
  for (const char* folder : {"docs", "."}) {
    for (const auto& entry : std::filesystem::directory_iterator(repository / folder)) {
      if (entry.path().extension() != ".md") continue;
      for (const auto& name : names_in(read_file(entry.path()), std::regex("(?:`|\n    )yoke ([a-z]+)"))) {
        EXPECT_TRUE(find_command(name) != nullptr || name == "help") << entry.path() << " names `yoke " << name << "`";
        named.insert(name);
      }
    }
  }
  for (const auto& name : visible_names()) EXPECT_TRUE(named.contains(name)) << "no page names `yoke " << name << "`";
}

}  // namespace
}  // namespace yoke::cli
