// Tests the command itself: subcommands, help, spelling hints, completion, man pages, and the programs and recipes in
// its installation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "tests/run/commands.h"
#include "tests/run/launch.h"
#include "tests/run/prefix.h"
#include "yoke/base/file.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

Result yoke(std::vector<std::string> words) {
  words.insert(words.begin(), kYoke);
  return run({.argv = std::move(words)});
}

TEST(CommandLine, VersionAndHelp) {
  EXPECT_EQ(yoke({"--version"}).out, "yoke " YOKE_TEST_VERSION "\n");
  EXPECT_EQ(yoke({"-V"}).out, "yoke " YOKE_TEST_VERSION "\n");
  std::vector<std::vector<std::string>> asked = {{"--help"},        {},          {"help"}, {"help", "run"},
                                                 {"--help", "run"}, {"ls", "-h"}};
  for (const auto& command : commands()) asked.push_back(words_with(command, {"--help"}));
  ASSERT_GT(asked.size(), 20);
  for (const auto& words : asked) {
    const auto result = yoke(words);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.out, HasSubstr("Examples:\n"));
    EXPECT_THAT(result.err, IsEmpty());
  }
}

TEST(CommandLine, UnknownWordsAreSpellChecked) {
  const auto command = yoke({"rnu", "-n", "2"});
  EXPECT_EQ(command.exit_code, 64);
  EXPECT_EQ(command.err, "yoke: no command `rnu` (did you mean `run`?); see `yoke --help`\n");
  const auto option = yoke({"run", "--gracee", "3", "--", "true"});
  EXPECT_EQ(option.exit_code, 64);
  EXPECT_THAT(option.err, StartsWith("yoke run: unknown option --gracee (did you mean `--grace`?)"));
  EXPECT_THAT(yoke({"infer", "m.pt", "--inptu", "x.npy"}).err, HasSubstr("--inptu (did you mean `--input`?)"));
  EXPECT_THAT(yoke({"infer", "m.pt", "-n4"}).err, HasSubstr("--input is required"));
  EXPECT_THAT(yoke({"--verion"}).err, HasSubstr("did you mean `--version`?"));
  EXPECT_EQ(yoke({"run", "--grace", "soon", "--", "true"}).exit_code, 64);
  EXPECT_EQ(yoke({"new"}).exit_code, 64);
  EXPECT_EQ(yoke({"completion", "tcsh"}).exit_code, 64);
}

TEST(CommandLine, BindCountsBeforeTorchrunsVariableAndContradictsItsOption) {
  const auto plan = [](std::vector<std::string> words) {
    words.insert(words.begin(), {YOKE_COMMAND, "run", "-n", "1"});
    words.insert(words.end(), {"--plan", "--", "true"});
    return run({.argv = words, .environment = {{"PET_NUMA_BINDING", "node"}}});
  };
  EXPECT_THAT(plan({}).out, HasSubstr("bound: "));
  EXPECT_THAT(plan({"--bind", "none"}).out, Not(HasSubstr("bound: ")));
  const auto both = plan({"--bind", "none", "--numa-binding", "socket"});
  EXPECT_EQ(both.exit_code, 64);
  EXPECT_THAT(both.err, HasSubstr("--bind none and --numa-binding socket"));
}

/// If a value comes from an environment variable, the message must name the variable, because the user typed no option.
TEST(CommandLine, WhatIsWrongInAVariableIsSaidOfTheVariable) {
  const auto said_of = [](const char* variable, const char* value, std::vector<std::string> words = {}) {
    words.insert(words.begin(), {YOKE_COMMAND, "run"});
    words.insert(words.end(), {"--", "true"});
    const auto result = run({.argv = words, .environment = {{variable, value}}});
    EXPECT_EQ(result.exit_code, 64) << variable;
    return result.err;
  };
  EXPECT_THAT(said_of("PET_NNODES", "x"), StartsWith("yoke run: PET_NNODES x: this is not a number"));
  EXPECT_THAT(said_of("PET_NPROC_PER_NODE", "x"), StartsWith("yoke run: PET_NPROC_PER_NODE x: "));
  EXPECT_THAT(said_of("PET_MAX_RESTARTS", "x"), StartsWith("yoke run: PET_MAX_RESTARTS x: give 0 to 1000000"));
  EXPECT_THAT(said_of("PET_NO_PYTHON", "foo"), StartsWith("yoke run: PET_NO_PYTHON foo: give 1 or 0"));
  EXPECT_THAT(said_of("PET_NNODES", "2", {"--nnodes", "x"}), StartsWith("yoke run: --nnodes x: "));
  EXPECT_THAT(said_of("PET_NPROC_PER_NODE", "2", {"-n", "x"}), StartsWith("yoke run: -n x: "));
  const auto other = run({.argv = {YOKE_COMMAND, "claims", "--help"}, .environment = {{"PET_MAX_RESTARTS", "x"}}});
  EXPECT_EQ(other.exit_code, 0) << "the variables are those of `yoke run` alone: " << other.err;
}

TEST(CommandLine, HostsNeedAFolderThatThereIs) {
  const TemporaryFolder folder;
  const auto result = run({.argv = {"sh", "-c", "mkdir gone; cd gone; rmdir ../gone; exec \"$@\"", "sh", kYoke, "run",
                                    "--hosts", "a", "--ssh", "false", "--", "true"},
                           .folder = folder.path()});
  EXPECT_EQ(result.exit_code, 69);
  EXPECT_THAT(
      result.err,
      StartsWith("yoke run: cannot get the path of the working folder, where the program starts on each host: "));
}

/// `--hosts "$HOSTS"` with an unset variable must not run the job on this machine.
TEST(CommandLine, AnEmptyValueIsRefusedAndNothingRuns) {
  for (const std::string option : {"--hosts",
                                   "--hostfile",
                                   "--ssh",
                                   "--remote-yoke",
                                   "--nnodes",
                                   "--node-rank",
                                   "--nproc-per-node",
                                   "-n",
                                   "--max-restarts",
                                   "--grace",
                                   "--heartbeat-timeout",
                                   "--bind",
                                   "--numa-binding",
                                   "--signals-to-handle",
                                   "--log-dir",
                                   "--log_dir",
                                   "--redirects",
                                   "-t",
                                   "--local-addr",
                                   "--master-addr",
                                   "--master-port",
                                   "--rdzv-id",
                                   "--role",
                                   "--logs-specs"}) {
    const auto result = yoke({"run", option, "", "--", "echo", "ran"});
    EXPECT_EQ(result.exit_code, 64) << option;
    EXPECT_THAT(result.err, HasSubstr(": the value is empty, perhaps because a shell variable is not set;")) << option;
    EXPECT_THAT(result.out, IsEmpty()) << option;
  }
  const auto joined = yoke({"run", "--hosts=", "-n", "2", "--", "echo", "ran"});
  EXPECT_EQ(joined.exit_code, 64);
  EXPECT_EQ(
      joined.err,
      "yoke run: --hosts: the value is empty, perhaps because a shell variable is not set; give a value, or leave "
      "the option out\n");
  for (const auto& words : std::vector<std::vector<std::string>>{{"stop", ""},
                                                                 {"kill", ""},
                                                                 {"kill", "-d", ""},
                                                                 {"ps", "--user="},
                                                                 {"devices", "--watch", ""},
                                                                 {"train", "-n", "", "demo"},
                                                                 {"bind", "-n", ""}}) {
    const auto result = yoke(words);
    EXPECT_EQ(result.exit_code, 64) << words[0];
    EXPECT_THAT(result.err, HasSubstr("the value is empty")) << words[0];
  }
}

/// These options of torchrun are empty by default, so an empty value is allowed.
TEST(CommandLine, SomeOfTorchrunsOptionsMayBeEmpty) {
  for (const std::string option :
       {"--rdzv-endpoint", "--rdzv-conf", "--local-ranks-filter", "--duplicate-stdout-filters",
        "--duplicate-stderr-filters", "--log-line-prefix-template"}) {
    const auto result = yoke({"run", option, "", "--", "echo", "ran"});
    EXPECT_EQ(result.out, "ran\n") << option << result.err;
    EXPECT_EQ(yoke({"run", option + "=", "--", "echo", "ran"}).out, "ran\n") << option;
  }
}

TEST(CommandLine, TheLastOfARepeatedOptionCounts) {
  const auto ranks =
      yoke({"run", "-q", "-n", "3", "--rdzv-id", "a", "--quiet", "--nproc_per_node=1", "--rdzv-id=b",
            "--virtual-local-rank", "--virtual-local-rank", "--", "sh", "-c", "echo $WORLD_SIZE $TORCHELASTIC_RUN_ID"});
  EXPECT_EQ(ranks.out, "1 b\n") << ranks.err;
  EXPECT_THAT(yoke({"bind", "-n", "2", "-n", "1", "--format", "mask", "--format", "table"}).out,
              AllOf(HasSubstr("\n   0  "), Not(HasSubstr("\n   1  "))));
  EXPECT_THAT(yoke({"bind", "-n", "two", "-n", "1"}).err, StartsWith("yoke bind: -n two: give auto, gpu, cpu or N"))
      << "each is checked, as by torchrun's argparse";
  EXPECT_EQ(yoke({"devices", "--vendor", "nvidia", "--json", "--vendor", "cpu", "--json"}).err, "");
  EXPECT_THAT(yoke({"devices", "-i", "none-such", "-i", "cpu"}).err, HasSubstr("none-such"))
      << "but a list has them all";
  EXPECT_THAT(yoke({"kill", "4194301", "4194302"}).err, HasSubstr("4194301"));
}

TEST(CommandLine, ProgramsMayBeNamedLikeCommands) {
  TemporaryFolder folder;
  folder.write("train", "#!/bin/sh\necho mine $*\n", true);
  const auto result = run({.argv = {kYoke, "run", "train", "run", "--help"},
                           .environment = {{"PATH", folder.path() + ":" + getenv("PATH")}}});
  EXPECT_EQ(result.out, "mine run --help\n") << result.err;
}

TEST(CommandLine, ProgramsBesideItAreCommands) {
  Prefix prefix;
  prefix.write("libexec/yoke/yoke-hello", "#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 9\n", true);
  const auto result = prefix.yoke({"hello", "-n", "--help", "two words", "--", ""});
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_EQ(result.out, "<-n><--help><two words><--><>");
  EXPECT_THAT(prefix.yoke({"--help"}).out, HasSubstr("Also installed: hello"));
  EXPECT_THAT(prefix.yoke({"helo"}).err, HasSubstr("did you mean `hello`?"));

  TemporaryFolder elsewhere;
  elsewhere.write("yoke-hello", "#!/bin/sh\necho wrong\n", true);
  elsewhere.write("yoke-other", "#!/bin/sh\necho other\n", true);
  const auto path = elsewhere.path() + ":" + getenv("PATH");
  EXPECT_EQ(prefix.yoke({"other"}, {{"PATH", path}}).out, "other\n");
  EXPECT_EQ(prefix.yoke({"hello"}, {{"PATH", path}}).exit_code, 9) << "its own come first";
}

TEST(CommandLine, RecipesAreListedAndRun) {
  Prefix prefix;
  EXPECT_THAT(prefix.yoke({"train", "--list"}).out, HasSubstr("no recipes in " + prefix.path("libexec/yoke/recipes")));
  const auto none = prefix.yoke({"train", "demo"});
  EXPECT_EQ(none.exit_code, 66);
  EXPECT_THAT(none.err, AllOf(StartsWith("yoke train: no recipe `demo`"), HasSubstr("`pip install yoke-torch`")));
  prefix.write("libexec/yoke/recipes/demo/recipe.toml",
               "name = \"demo\"\nsummary = \"Shows it\"\n[[option]]\nname = \"x\"\n");
  prefix.write("libexec/yoke/recipes/demo/demo", "#!/bin/sh\necho \"$RANK/$WORLD_SIZE $*\"\n", true);
  prefix.write("libexec/yoke/recipes/single/recipe.toml", "summary = \"Alone\"\nranks = 1\n");
  prefix.write("libexec/yoke/recipes/single/single", "#!/bin/sh\necho $WORLD_SIZE\n", true);
  EXPECT_EQ(prefix.yoke({"train", "--list"}).out, "demo    Shows it\nsingle  Alone\n");
  const auto json = prefix.yoke({"train", "--list", "--json"}).out;
  EXPECT_THAT(json, HasSubstr("\"name\": \"demo\""));
  EXPECT_THAT(json, HasSubstr("\"ranks\": 1"));

  const auto both = prefix.yoke({"train", "demo", "--epochs", "3", "-n", "2", "--out", "a b"});
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("\n")) << both.out;
  EXPECT_THAT("\n" + both.out, HasSubstr("\n0/2 --epochs 3 --out a b\n")) << "rank 0 speaks for all";
  EXPECT_THAT(both.out, HasSubstr("[1] 1/2 --epochs 3 --out a b\n"));
  EXPECT_THAT(prefix.yoke({"train", "-n", "3", "demo"}).out, HasSubstr("[2] 2/3"));
  EXPECT_EQ(prefix.yoke({"train", "demo", "--help"}).out, "0/1 --help\n") << "the recipe's own help";
  EXPECT_EQ(prefix.yoke({"train", "single"}).out, "1\n");
  EXPECT_THAT(prefix.yoke({"train", "demo"}, {{"LD_LIBRARY_PATH", YOKE_FAKES_FOLDER}, {"YOKE_FAKE_GPUS", "4"}}).out,
              HasSubstr("[3] 3/4"));

  const auto unknown = prefix.yoke({"train", "dmeo"});
  EXPECT_EQ(unknown.exit_code, 66);
  EXPECT_THAT(unknown.err, AllOf(StartsWith("yoke train: no recipe `dmeo`"), HasSubstr("did you mean `demo`?")));
  EXPECT_THAT(prefix.yoke({"train", "./prog"}).err, HasSubstr("started by `yoke run ./prog`"));
  prefix.write("libexec/yoke/recipes/demo/recipe.toml", "name = \n");
  const auto torn = prefix.yoke({"train", "--list"});
  EXPECT_EQ(torn.exit_code, 65);
  EXPECT_THAT(torn.err, HasSubstr("demo/recipe.toml:1: "));
}

TEST(CommandLine, RecipesEndAsProgramsOfYokeRun) {
  Prefix prefix;
  prefix.write("libexec/yoke/recipes/demo/recipe.toml", "summary = \"Ends\"\nranks = 2\n");
  prefix.write("libexec/yoke/recipes/demo/demo", "#!/bin/sh\n[ $RANK = 0 ] || exec sleep 1000\neval \"$1\"\n", true);
  for (const std::string words : {"exit 7", "kill -KILL $$", "kill -TERM $$"}) {
    const auto train = prefix.yoke({"train", "demo", words});
    const auto program = prefix.yoke({"run", "-n", "2", prefix.path("libexec/yoke/recipes/demo/demo"), words});
    EXPECT_EQ(train.exit_code, program.exit_code) << words;
    EXPECT_NE(train.exit_code, 0);
    EXPECT_THAT(train.err, StartsWith("yoke train: rank 0 (pid ")) << words;
    EXPECT_THAT(program.err, StartsWith("yoke run: rank 0 (pid ")) << words;
  }
}

TEST(CommandLine, NewCopiesTheExample) {
  Prefix prefix;
  EXPECT_EQ(prefix.yoke({"new", prefix.path("mine")}).exit_code, 69) << "there is no example";
  prefix.write("share/yoke/examples/first/CMakeLists.txt", "project(first)\nadd_executable(first x)\n");
  prefix.write("share/yoke/examples/first/src/main.cpp", "// the first: build/first\nint main() { run(\"first\"); }\n");
  const auto made = prefix.yoke({"new", prefix.path("mine")});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("cmake -B build -DCMAKE_PREFIX_PATH=" + prefix.path()));
  EXPECT_THAT(made.out, HasSubstr("yoke run -n 2 -- build/mine\n"));
  EXPECT_EQ(read_file(prefix.path("mine/CMakeLists.txt")), "project(mine)\nadd_executable(mine x)\n");
  EXPECT_EQ(read_file(prefix.path("mine/src/main.cpp")), "// the first: build/mine\nint main() { run(\"mine\"); }\n");
  for (const std::string name : {"test", "1st", "a b", "a$(x)"}) {
    const auto refused = prefix.yoke({"new", prefix.path(name)});
    EXPECT_EQ(refused.exit_code, 64) << name;
    EXPECT_THAT(refused.err, HasSubstr("'" + name + "' cannot be the name of a program"));
    EXPECT_FALSE(std::filesystem::exists(prefix.path(name)));
  }
  const auto again = prefix.yoke({"new", prefix.path("mine")});
  EXPECT_EQ(again.exit_code, 69);
  EXPECT_THAT(again.err, HasSubstr("exists and is not an empty folder"));
  std::filesystem::create_directory(prefix.path("empty"));
  EXPECT_EQ(prefix.yoke({"new", prefix.path("empty")}).exit_code, 0);
}

TEST(CommandLine, TheBuildGetsAPageOfEveryCommand) {
  TemporaryFolder folder;
  EXPECT_EQ(yoke({"man", "--folder", folder.path()}).exit_code, 0);
  std::vector<std::string> pages = {"yoke.1"}, written;
  for (const auto& command : commands()) {
    pages.push_back("yoke-" + std::regex_replace(command, std::regex(" "), "-") + ".1");
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    written.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(written, testing::UnorderedElementsAreArray(pages));
  EXPECT_EQ(read_file(folder.path("yoke-run.1")), yoke({"man", "run"}).out);
  EXPECT_EQ(yoke({"man", "--folder", folder.path("none")}).exit_code, 66);
}

TEST(CommandLine, ManPagesAreClean) {
  TemporaryFolder folder;
  auto pages = commands();
  pages.emplace_back("");  // yoke(1) itself
  for (const auto& command : pages) {
    auto words = words_with(command, {});
    words.insert(words.begin(), "man");
    const auto page = yoke(words);
    EXPECT_EQ(page.exit_code, 0);
    folder.write("page.1", page.out);
    const auto shown = run({.argv = {"man", "--warnings", "-l", folder.path("page.1")},
                            .environment = {{"MANWIDTH", "80"}, {"LC_ALL", "C.UTF-8"}, {"MAN_KEEP_FORMATTING", ""}}});
    EXPECT_EQ(shown.exit_code, 0);
    EXPECT_THAT(shown.err, IsEmpty()) << command;
    EXPECT_THAT(shown.out, HasSubstr("EXAMPLES"));
  }
}

}  // namespace
}  // namespace yoke::test
