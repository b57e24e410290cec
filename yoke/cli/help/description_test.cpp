#include "yoke/cli/help/description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

CommandDescription tree() {
  CommandDescription root{"yoke", "Does it", "Examples:\n  yoke run x", {{{"--version"}, "", "Print it"}}, {}};
  CommandDescription run{
      "run", "Start it's program", "Examples:\n  yoke run -n 2\n\nMore.\n\nThe exit status.", {}, {}};
  run.path = "run";
  run.options.push_back({{"-n", "--nproc-per-node"}, "auto|gpu|N", "How many: [1]", "1"});
  run.options.push_back({{"PROGRAM"}, "[ARG...]", "What", "", true, false, true});
  root.commands = {run, {"completion", "Scripts", "", {{{"SHELL"}, "bash|zsh", "Which", "", true}}, {}}};
  return root;
}

TEST(Description, OnlySmallLettersAreChoices) {
  EXPECT_THAT((OptionDescription{{}, "auto|gpu|N"}.choices()), ElementsAre("auto", "gpu"));
  EXPECT_TRUE((OptionDescription{{}, "SECONDS"}.choices().empty()));
}

TEST(Description, CommandsAndOptionsHaveSeveralNames) {
  auto root = tree();
  root.commands[1].aliases = {"complete"};
  EXPECT_EQ(root.find_command("complete"), &root.commands[1]);
  EXPECT_EQ(root.find_command("other"), nullptr);
  const auto& run = root.commands[0];
  EXPECT_EQ(run.find_option("-n"), run.find_option("--nproc-per-node"));
  EXPECT_EQ(run.find_option("PROGRAM"), nullptr) << "a positional";
  EXPECT_TRUE(run.starts_program());
  EXPECT_FALSE(root.commands[1].starts_program());
}

TEST(Description, ManPagesHaveTheUsualSections) {
  const auto root = tree();
  const auto page = man_page(root, root.commands[0], "1.2");
  EXPECT_THAT(page, HasSubstr(".TH YOKE\\-RUN 1 \"\" \"yoke 1.2\""));
  EXPECT_THAT(page, HasSubstr("yoke\\-run \\- start it's program"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-n\\fR, \\fB\\-\\-nproc\\-per\\-node\\fR \\fIauto|gpu|N\\fR\n"));
  EXPECT_THAT(page, HasSubstr("(default: 1)"));
  EXPECT_THAT(page, HasSubstr(".SH EXAMPLES\n.nf\n  yoke run \\-n 2\n.fi\n.SH NOTES\n.PP\nMore.\n.SH EXIT "
                              "STATUS\n.PP\nThe exit status.\n"));
  EXPECT_THAT(man_page(root, root, "1.2"), HasSubstr(".SH COMMANDS\n.TP\n\\fBrun\\fR\n"));
  EXPECT_THAT(man_page(root, root, "1.2"), Not(HasSubstr("EXIT STATUS")));
}

TEST(Description, AnActionHasAPageOfItsOwn) {
  auto root = tree();
  CommandDescription env = {"env", "Environments", "", {}, {}};
  env.path = "env";
  env.commands = {{"create", "Make one", "Examples:\n  yoke env create x", {}, {}}};
  env.commands[0].path = "env create";
  root.commands.push_back(env);
  const auto page = man_page(root, env.commands[0], "1.2");
  EXPECT_THAT(page, HasSubstr(".TH YOKE\\-ENV\\-CREATE 1 "));
  EXPECT_THAT(page, HasSubstr(".B yoke env create\n"));
  EXPECT_THAT(page, HasSubstr(".BR yoke\\-env (1)"));
  EXPECT_THAT(man_page(root, env, "1.2"), HasSubstr(".SH COMMANDS\n.TP\n\\fBcreate\\fR\nMake one.\n"));
  EXPECT_THAT(man_page(root, env, "1.2"), HasSubstr(".BR yoke\\-env\\-create (1)"));
  EXPECT_THAT(man_page(root, root.commands[0], "1.2"), Not(HasSubstr("env\\-create")));
}

}  // namespace
}  // namespace yoke::cli
