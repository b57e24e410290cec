// Tests completion in real shells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/run/launch.h"
#include "tests/run/prefix.h"

namespace yoke::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using List = std::vector<std::string>;

constexpr const char* kBashCompletion = "/usr/share/bash-completion/bash_completion";

bool is_here(const std::string& program) { return run({.argv = {"sh", "-c", "command -v " + program}}).exit_code == 0; }

/// An installation with recipes on the PATH, and a working folder with files.
struct Shells : Prefix {
  Shells() {
    for (const std::string name : {"demo", "my recipe"}) {
      write("libexec/yoke/recipes/" + name + "/recipe.toml", "summary = \"Shows it\"\n");
    }
    write("files/hosts.txt", "");
    write("files/my hosts", "");
    write("files/train.py", "");
    write("files/sub/deep.txt", "");
    write("files/run/x", "");
  }
  Result run_script(const char* shell, const std::string& script, List arguments) const {
    List argv = {shell};
    if (std::string_view(shell) == "bash") argv.insert(argv.end(), {"--norc", "--noprofile"});
    argv.insert(argv.end(), {"-c", script});
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return run({.argv = argv,
                .environment = {{"PATH", path("bin") + ":" + getenv("PATH")}, {"HOME", path()}},
                .without = {"XDG_CONFIG_HOME", "XDG_DATA_HOME"},
                .folder = path("files")});
  }

  /// Returns COMPREPLY for COMP_WORDS=(WORDS), with the cursor at the end of the last word. If `package` is given, this
  /// file is sourced first.
  List bash(const std::string& words, const std::string& package = "") const {
    const auto result = run_script("bash",
                                   "[ -z \"$1\" ] || . \"$1\"\n"
                                   "source <(yoke completion bash) && complete -p yoke >/dev/null || exit\n"
                                   "eval \"COMP_WORDS=($2)\"\n"
                                   "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                                   "COMP_LINE=\"${COMP_WORDS[*]}\" COMP_POINT=${#COMP_LINE}\n"
                                   "_yoke yoke \"${COMP_WORDS[COMP_CWORD]}\"\n"
                                   "[ ${#COMPREPLY[@]} = 0 ] || printf '%s\\n' \"${COMPREPLY[@]}\"",
                                   {"bash", package, words});
    EXPECT_EQ(result.exit_code, 0) << words;
    EXPECT_THAT(result.err, IsEmpty()) << words;
    auto lines = lines_of(result.out);
    std::sort(lines.begin(), lines.end());
    return lines;
  }
};

// Bash also splits words at = and :, and replaces only the last piece.
TEST(Completion, BashOffersWhatMayFollow) {
  const Shells shells;
  const List files = {"hosts.txt", "my hosts", "run", "sub", "train.py"};
  const struct {
    const char* words;
    List offers;
  } cases[] = {
      {"yoke ru", {"run"}},
      {"yoke --v", {"--version"}},
      {"yoke help comp", {"completion"}},
      {"yoke run --gr", {"--grace"}},
      {"yoke run --nproc", {"--nproc-per-node"}},
      {"yoke run --nproc_p", {"--nproc_per_node"}},
      {"yoke run -n ''", {"auto", "cpu", "gpu"}},
      {"yoke run --nproc_per_node ''", {"auto", "cpu", "gpu"}},
      {"yoke run --bind no", {"node", "none"}},
      {"yoke run --bind = no", {"node", "none"}},
      {"yoke run --bind =", {"auto", "cache", "node", "none", "socket"}},
      {"yoke run --bind=no", {"--bind=node", "--bind=none"}},  // here COMP_WORDBREAKS has no =
      {"yoke run --grace ''", {}},
      {"yoke run --hostfile ''", files},
      {"yoke run --hostfile ho", {"hosts.txt"}},
      {"yoke run --hostfile = ho", {"hosts.txt"}},
      {"yoke run --hostfile =", files},
      {"yoke run --hostfile=ho", {"--hostfile=hosts.txt"}},
      {"yoke run --hostfile 'my\\ '", {"my hosts"}},
      {"yoke run --log-dir ''", {"run", "sub"}},
      {"yoke run --log-dir = s", {"sub"}},
      {"yoke ls --vend", {"--vendor"}},
      {"yoke ls --vendor n", {"nvidia"}},
      {"yoke completion ''", {"bash", "fish", "zsh"}},
      {"yoke train ''", {"demo", "my\\ recipe"}},
      {"yoke train my", {"my\\ recipe"}},
      {"yoke train 'my\\ r'", {"my\\ recipe"}},
      {"yoke train '\"my r'", {"my recipe"}},
      {"yoke train demo ho", {"hosts.txt"}},
      {"yoke train demo --", {}},
      {"yoke new ''", {"run", "sub"}},
      {"yoke run -n 2 train", {"train.py"}},
      {"yoke run -n 2 -- sub/", {"sub/deep.txt"}},
      {"yoke run -n 2 ./prog ho", {"hosts.txt"}},
      {"yoke run -n 2 ./prog --", {}},
      {"yoke run -n 2 ./prog --nproc", {}},
      {"yoke run -n 2 -- --nproc", {}},
      {"yoke jobs ''", {}},
  };
  for (const auto& one : cases) EXPECT_EQ(shells.bash(one.words), one.offers) << one.words;
  EXPECT_THAT(shells.bash("yoke run ech"), Contains("echo")) << "programs on the PATH";
}

TEST(Completion, BashLeavesTheProgramsWordsToTheProgramsCompletion) {
  if (!std::filesystem::exists(kBashCompletion)) GTEST_SKIP() << "there is no bash-completion";
  const Shells shells;
  EXPECT_EQ(shells.bash("yoke run --gr", kBashCompletion), List{"--grace"});
  EXPECT_EQ(shells.bash("yoke run -n 2 ./prog --nproc", kBashCompletion), List{});
  EXPECT_EQ(shells.bash("yoke run -n 2 ./prog ho", kBashCompletion), List{"hosts.txt"});
  EXPECT_EQ(shells.bash("yoke run --bind = node yoke run --bind = so", kBashCompletion), List{"socket"});
}

constexpr const char* kZshScript = R"(
zmodload zsh/zpty || exit 1
cat >.capture <<'END'
PS1= PS2=
autoload -U compinit && compinit -u -D
source <(yoke completion zsh)
compadd() {
  case "$*" in
    *-[OAD]\ *) builtin compadd "$@" ;;
    *)
      local -a found
      builtin compadd -O found "$@"
      (( $#found )) && print -rl -- "$IPREFIX"$^found >>.found
      builtin compadd "$@" ;;
  esac
}
finish() { print done >>.found; exit }
zle -N finish
bindkey '^I' list-choices
bindkey '^X' finish
END
zpty shell zsh -f -i
zpty -w shell "source .capture; print READY"
while zpty -r shell line; do [[ $line == *READY* && $line != *source* ]] && break; done
zpty -w -n shell "$1"$'\t\x18'
while zpty -r shell line; do :; done
cat .found
)";

TEST(Completion, ZshOffersWhatMayFollow) {
  if (!is_here("zsh")) GTEST_SKIP() << "there is no zsh";
  const Shells shells;
  const auto zsh = [&](const std::string& line) {
    const auto result = shells.run_script("zsh", kZshScript, {"zsh", line});
    std::filesystem::remove(shells.path("files/.found"));
    auto lines = lines_of(result.out);
    EXPECT_THAT(lines, Contains("done")) << line << result.err;
    std::erase(lines, "done");
    std::sort(lines.begin(), lines.end());
    lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
    return lines;
  };
  EXPECT_THAT(zsh("yoke ru"), ElementsAre("run"));
  EXPECT_THAT(zsh("yoke run --gr"), ElementsAre("--grace"));
  EXPECT_THAT(zsh("yoke run --nproc_p"), ElementsAre("--nproc_per_node"));
  EXPECT_THAT(zsh("yoke run --bind no"), ElementsAre("node", "none"));
  EXPECT_THAT(zsh("yoke run --bind=no"), ElementsAre("--bind=node", "--bind=none"));
  EXPECT_THAT(zsh("yoke run --hostfile ho"), ElementsAre("hosts.txt"));
  EXPECT_THAT(zsh("yoke run --hostfile=ho"), ElementsAre("--hostfile=hosts.txt"));
  EXPECT_THAT(zsh("yoke run --log-dir s"), ElementsAre("sub"));
  EXPECT_THAT(zsh("yoke train my"), ElementsAre("my recipe"));
  EXPECT_THAT(zsh("yoke run -n 2 train"), Contains("train.py"));
  EXPECT_THAT(zsh("yoke run -n 2 ./prog ho"), ElementsAre("hosts.txt"));
  EXPECT_THAT(zsh("yoke run -n 2 ./prog --nproc"), IsEmpty());
}

TEST(Completion, FishOffersWhatMayFollow) {
  if (!is_here("fish")) GTEST_SKIP() << "there is no fish";
  const Shells shells;
  const auto fish = [&](const std::string& line) {
    const auto result = shells.run_script(
        "fish", "yoke completion fish | source; complete -C $argv[1] | string replace -r '\\t.*' ''", {line});
    EXPECT_THAT(result.err, IsEmpty()) << line;
    auto lines = lines_of(result.out);
    std::sort(lines.begin(), lines.end());
    lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
    return lines;
  };
  EXPECT_THAT(fish("yoke ru"), Contains("run"));
  EXPECT_THAT(fish("yoke run --gr"), ElementsAre("--grace"));
  EXPECT_THAT(fish("yoke run --nproc_p"), ElementsAre("--nproc_per_node"));
  EXPECT_THAT(fish("yoke run --bind no"), ElementsAre("node", "none"));
  EXPECT_THAT(fish("yoke run --bind=no"), ElementsAre("--bind=node", "--bind=none"));
  EXPECT_THAT(fish("yoke run --hostfile ho"), ElementsAre("hosts.txt"));
  EXPECT_THAT(fish("yoke run --hostfile=ho"), ElementsAre("--hostfile=hosts.txt"));
  EXPECT_THAT(fish("yoke run --log-dir su"), ElementsAre("sub/"));
  EXPECT_THAT(fish("yoke train my"), ElementsAre("my recipe"));
  EXPECT_THAT(fish("yoke run -n 2 train"), Contains("train.py"));
  EXPECT_THAT(fish("yoke run -n 2 ./prog ho"), ElementsAre("hosts.txt"));
  EXPECT_THAT(fish("yoke run -n 2 ./prog --nproc"), IsEmpty());
}

TEST(Completion, ScriptsAreWellFormed) {
  const Shells shells;
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    if (!is_here(shell)) continue;
    const auto check = shells.run_script("bash", "yoke completion $1 >script && $1 -n script", {"bash", shell});
    EXPECT_EQ(check.exit_code, 0) << check.err;
    EXPECT_THAT(check.err, IsEmpty());
  }
}

}  // namespace
}  // namespace yoke::test
