#include "yoke/cli/help/complete.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::cli {
namespace {

using Kind = Completion::Kind;
using List = std::vector<std::string>;

CommandDescription completion_tree() {
  CommandDescription root{"yoke", "", "", {{{"--version"}, "", ""}}, {}};
  CommandDescription run{"run", "", "", {}, {}};
  run.options = {{{"-n", "--nproc-per-node"}, "auto|gpu|N", "", "1"},
                 {{"--hostfile"}, "FILE", ""},
                 {{"--log-dir"}, "DIR", ""},
                 {{"--grace"}, "SECONDS", ""},
                 {{"--quiet"}, "", ""},
                 {.names = {"PROGRAM"}, .value = "[ARG...]", .is_positional = true, .takes_rest = true}};
  CommandDescription train = {"train", "", "", {{{"--list"}, "", ""}}, {}};
  train.options.push_back({.names = {"RECIPE"}, .value = "[ARG...]", .is_positional = true, .takes_rest = true});
  CommandDescription devices = {"devices", "", "", {}, {}, {"ls"}};
  devices.options = {{.names = {"--watch"}, .value = "SECONDS", .value_is_optional = true},
                     {{"--vendor"}, "nvidia|amd", ""},
                     {.names = {"-d", "--device"}, .value = "ID...", .is_hidden = true}};
  CommandDescription visible = {"visible", "", "", {}, {}};
  visible.options = {{.names = {"--set"}, .value = "ID,ID..."},
                     {.names = {"-d"}, .value = "ID,ID...", .is_hidden = true},
                     {.names = {"PROGRAM"}, .value = "[ARG...]", .is_positional = true, .takes_rest = true}};
  CommandDescription env = {"env", "", "", {{{"--help"}, "", ""}}, {}};
  env.commands = {{"create", "", "", {{{"--json"}, "", ""}, {.names = {"DIR"}, .is_positional = true}}, {}}, run};
  root.commands = {run,
                   env,
                   train,
                   devices,
                   visible,
                   {"logs", "", "", {{.names = {"JOB"}, .is_positional = true}, {{"-f", "--follow"}, "", ""}}, {}},
                   {"new", "", "", {{.names = {"DIR"}, .is_positional = true}}, {}},
                   {"completion", "", "", {{.names = {"SHELL"}, .value = "bash|zsh", .is_positional = true}}, {}}};
  return root;
}

/// The completion as text: "words a b", "files", "folders", "program 2".
std::string completed(const List& words) {
  const auto completion = complete(completion_tree(), words,
                                   {.jobs = [] { return std::vector<CompletionWord>{{"4121"}}; },
                                    .recipes = [] { return std::vector<CompletionWord>{{"my recipe"}}; },
                                    .external_commands = [] { return std::vector<CompletionWord>{{"store"}}; }});
  auto text = to_text(completion);
  for (auto& c : text) c = c == '\n' ? ' ' : c;
  std::erase(text, '\t');
  text.pop_back();
  return text;
}

TEST(Complete, SaysWhatMayFollow) {
  const struct {
    List words;
    const char* completed;
  } cases[] = {
      {{}, "words run env train devices visible logs new completion store"},
      {{"r"}, "words run env train devices visible logs new completion store"},
      {{"--v"}, "words --version"},
      {{"--version", ""}, "words"},
      {{"help", ""}, "words run env train devices visible logs new completion store"},
      {{"help", "run", ""}, "words"},
      {{"store", ""}, "files"},
      // Options, in every spelling.
      {{"run", "-"}, "words -n --nproc-per-node --hostfile --log-dir --grace --quiet"},
      {{"run", "--"}, "words --nproc-per-node --hostfile --log-dir --grace --quiet"},
      {{"run", "--nproc_"}, "words --nproc_per_node --hostfile --log_dir --grace --quiet"},
      {{"ls", "--"}, "words --watch --vendor"},
      // Values of options.
      {{"run", "-n", ""}, "words auto gpu"},
      {{"run", "--nproc_per_node", ""}, "words auto gpu"},
      {{"run", "--nproc-per-node="}, "words --nproc-per-node=auto --nproc-per-node=gpu"},
      {{"run", "--nproc_per_node=g"}, "words --nproc_per_node=auto --nproc_per_node=gpu"},
      {{"run", "--hostfile", ""}, "files"},
      {{"run", "--hostfile=x"}, "files"},
      {{"run", "--log-dir", ""}, "folders"},
      {{"run", "--log_dir="}, "folders"},
      {{"run", "--grace", ""}, "words"},
      {{"run", "--quiet="}, "words"},
      {{"run", "--unknown="}, "words"},
      {{"ls", "--vendor", "n"}, "words nvidia amd"},
      {{"ls", "--watch", "--"}, "words --watch --vendor"},
      {{"ls", "--watch", "2", "--"}, "words --watch --vendor"},
      // Hidden options are accepted, but not offered.
      {{"ls", "-"}, "words --watch --vendor"},
      {{"visible", "-d", "0", "-"}, "words --set"},
      {{"visible", "-d", ""}, "words"},
      {{"visible", "-d", "0", "p"}, "program 3"},
      // A program and its arguments.
      {{"run", ""}, "program 1"},
      {{"run", "-n", "2", ""}, "program 3"},
      {{"run", "-n2", "--grace=3", "p"}, "program 3"},
      {{"run", "-n", "2", "./prog", "--"}, "program 3"},
      {{"run", "-n", "2", "./prog", "-n", ""}, "program 3"},
      {{"run", "--quiet", "--", ""}, "program 3"},
      {{"run", "--quiet", "--", "--n"}, "program 3"},
      {{"run", "--quiet", "--", "p", "--", "x"}, "program 3"},
      // Positional arguments of other commands.
      {{"train", ""}, "words my recipe"},
      {{"train", "--list", ""}, "words my recipe"},
      {{"train", "my recipe", "--"}, "files"},
      {{"train", "--", ""}, "words my recipe"},
      {{"logs", ""}, "words 4121"},
      {{"logs", "-f", ""}, "words 4121"},
      {{"logs", "--", "-"}, "words 4121"},
      {{"new", ""}, "folders"},
      {{"completion", ""}, "words bash zsh"},
      {{"ls", ""}, "words"},
      // Commands with actions.
      {{"env", ""}, "words create run"},
      {{"env", "--"}, "words --help"},
      {{"env", "create", "--"}, "words --json"},
      {{"env", "create", ""}, "folders"},
      {{"env", "run", "./prog", "-"}, "program 2"},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(completed(one.words), one.completed) << testing::PrintToString(one.words);
  }
}

TEST(Complete, PrintsOneLineForEachWord) {
  EXPECT_EQ(to_text({Kind::kWords, {{"a b", "Does it"}, {"torn\nname"}, {"c", "Two\nlines"}}}),
            "words\na b\tDoes it\nc\tTwo\n");
}

}  // namespace
}  // namespace yoke::cli
