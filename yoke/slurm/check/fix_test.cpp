// What `--fix` changes and what it leaves, and how scripts are read that look unusual.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/text.h"
#include "yoke/slurm/check/report.h"

namespace yoke::slurm::check {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<Finding> mistakes_in(const std::string& text) {
  const auto script = read_script("job.sh", text);
  return check({.script = script, .version = std::nullopt, .site = nullptr});
}

constexpr const char* kFirstLines = "#!/bin/bash\n#SBATCH --time=10:00 --mem=1G\n";

TEST(SlurmCheck, MendsWhatKeepsItsMeaning) {
  const std::string text = "#SBATCH -n1\r\n#SBATCH \xe2\x80\x93time=10\r\nhostname\r\n#SBATCH --mem=1G\r\n";
  std::string mended = text;
  for (int i = 0; i < 4; ++i) mended = with_fixes(mended, mistakes_in(mended));
  EXPECT_EQ(mended, "#!/bin/bash\n#SBATCH -n1\n#SBATCH --time=10\n#SBATCH --mem=1G\nhostname\n");
  EXPECT_THAT(mistakes_in(mended), IsEmpty());
}

// What looks like a directive, but may be a part of something else, stays where it is.
TEST(SlurmCheck, MovesOnlyLinesThatAreSurelyComments) {
  const auto mended = [](const std::string& text) { return with_fixes(text, mistakes_in(text)); };
  const std::string head = kFirstLines;
  for (const std::string body :
       {"echo 'a\n#SBATCH -n2\nb'\n", "echo \"a\n#SBATCH -n2\nb\"\n", "./train \\\n#SBATCH -n2\n",
        "cat >x <<E\n#SBATCH -n2\nE\n", "cat >x <<\\E -\n#SBATCH -n2\nE\n", "echo $'a\\'\n#SBATCH -n2\n'\n",
        "echo ${x:-\n#SBATCH -n2\n}\n", "echo `date\n#SBATCH -n2\n`\n", "echo 'a\n#SLURM -n2\nb'\n",
        "echo 'a\n#SBATCH \xe2\x80\x93n2\nb'\n"}) {
    EXPECT_EQ(mended(head + body), head + body);
  }
  const std::string python = "#!/usr/bin/env python3\n#SBATCH --time=10:00 --mem=1G\nx = 1\n#SBATCH -n2\n";
  EXPECT_EQ(mended(python), python);
  EXPECT_EQ(mended(head + "echo \"it's\" # don't\n# isn't it\n#SBATCH -n2\n"),
            head + "#SBATCH -n2\necho \"it's\" # don't\n# isn't it\n");
}

// Half of a component, moved to the top, would be another job.
TEST(SlurmCheck, MovesNothingOfALateComponent) {
  const std::string text =
      "#!/bin/bash\n#SBATCH -N1 -t 5 --mem=1G\nmodule load cuda\n#SBATCH hetjob\n#SBATCH -N2\n#SBATCH "
      "--gpus-per-node=4\n"
      "srun --het-group=0,1 x\n";
  EXPECT_EQ(with_fixes(text, mistakes_in(text)), text);
}

// The late line would win over the header; a program of another language is no script of bash.
TEST(SlurmCheck, ChangesNoRequestAndNoLanguage) {
  const auto mended = [](const std::string& text) { return with_fixes(text, mistakes_in(text)); };
  const std::string contradiction = "#!/bin/bash\n#SBATCH --mem=1G -t 10 --nodes=16\nexit\n#SBATCH --nodes=1\n";
  EXPECT_EQ(mended(contradiction), contradiction);
  EXPECT_EQ(mended("# by me\n#!/usr/bin/env python3\nimport os\n"), "#!/usr/bin/env python3\n# by me\nimport os\n");
  EXPECT_EQ(mended("# !important\nimport os\n"), "# !important\nimport os\n");
  const std::string dashed = "#!/bin/bash\n#SBATCH \xe2\x80\x93n 4 --time=1:00:00 --mem=1G\n";
  EXPECT_EQ(mended(dashed), "#!/bin/bash\n#SBATCH -n 4 --time=1:00:00 --mem=1G\n");
  EXPECT_THAT(mistakes_in("#!/bin/bash\n#SBATCH -N2 -n2 --mem=1G -t 10\nwhich torchrun\nsrun ./a\n"), IsEmpty());
}

TEST(SlurmShell, ReadsCommandsWordsAndVariables) {
  const auto shell = read_shell(
      "for i in 1 2; do\n  srun -n1 ./a \"$i\" 2>err &\ndone\nwait\nif [ -n \"${X:-}\" ]; then y=$(cat f); fi\n"
      "f() {\n  local z=1\n}\ncat <<'E'\n$NOT\nE\ncase $1 in\n  a | b) one ;;\n  *) two ;;\nesac\nthree 'a $b' \\\n  "
      "last\n");
  std::vector<std::string> names;
  for (const auto& command : shell.commands) {
    if (!command.words.empty()) names.push_back(command.words[0].text + ":" + std::to_string(command.line));
  }
  EXPECT_THAT(names,
              ElementsAre("srun:2", "wait:4", "[:5", "cat:5", "local:7", "cat:9", "one:13", "two:14", "three:16"));
  EXPECT_TRUE(shell.commands[0].is_background);
  EXPECT_TRUE(shell.commands[0].is_in_loop);
  EXPECT_EQ(shell.commands[0].words.size(), 4U);
  EXPECT_EQ(shell.commands.back().words.back().line, 17);
  EXPECT_THAT(shell.assigned, Contains("y"));
  for (const auto& use : shell.uses) EXPECT_NE(use.name, "NOT");
}

// What the shell of the script expands is in brackets.
TEST(SlurmShell, TellsLiteralTextFromExpansions) {
  for (const auto& [written, expected] :
       std::initializer_list<std::pair<std::string, std::string>>{{"a$B.c", "a[$B].c"},
                                                                  {"'$B'$C", "$B[$C]"},
                                                                  {"\\$B", "$B"},
                                                                  {"\"\\$B ${C:-$D}\"", "$B [${C:-$D}]"},
                                                                  {"$'$B'", "$B"},
                                                                  {"`a $B`c", "[`a $B`]c"},
                                                                  {"'`a`'", "`a`"},
                                                                  {"\"\\`a\\`$B\"", "`a`[$B]"},
                                                                  {"x$(a '$B')", "x[$(a '$B')]"},
                                                                  {"$((1 + $B))", "[$((1 + $B))]"},
                                                                  {"$@$?", "[$@][$?]"},
                                                                  {"$.$", "$.$"},
                                                                  {"<(a $B)", "[<(a $B)]"},
                                                                  {"--x=$B", "--x=[$B]"}}) {
    const auto word = read_shell("x " + written).commands.back().words.back();
    std::string shown;
    for (size_t i = 0; i < word.text.size(); ++i) {
      for (const auto& part : word.expansions) shown += part.end == i ? "]" : "";
      for (const auto& part : word.expansions) shown += part.begin == i ? "[" : "";
      shown += word.text[i];
    }
    if (!word.expansions.empty() && word.expansions.back().end == word.text.size()) shown += "]";
    EXPECT_EQ(shown, expected) << written;
  }
  auto word = read_shell("x --a$A=b$C").commands.back().words.back();
  word.drop_front(5);
  EXPECT_EQ(word.text, "=b$C");
  ASSERT_EQ(word.expansions.size(), 1U);
  EXPECT_EQ(word.expansions[0].begin, 2U);
  EXPECT_EQ(word.expansions[0].end, 4U);
}

// The end of a here-document may have a dollar.
TEST(SlurmShell, EndsHereDocumentsAtTheirWord) {
  for (const std::string word : {"'$E'", "\\$E"}) {
    const auto shell = read_shell("cat <<" + word + "\nsrun ./a\n$E\nwait\n");
    ASSERT_EQ(shell.here_documents.size(), 1U);
    EXPECT_EQ(shell.here_documents[0].text, "srun ./a\n") << word;
    EXPECT_EQ(shell.commands.back().name(), "wait") << word;
  }
}

// Each row is a command and the program that it starts in the end.
TEST(SlurmShell, FindsTheProgramBehindWrappers) {
  for (const auto& [line, expected] :
       std::initializer_list<std::pair<std::string, std::string>>{{"srun ./a", "srun"},
                                                                  {"exec srun ./a", "srun"},
                                                                  {"env -u X A=1 B=/x srun ./a", "srun"},
                                                                  {"/usr/bin/time -f %e -o log srun ./a", "srun"},
                                                                  {"timeout 60 srun ./a", "srun"},
                                                                  {"timeout -k 5 -s INT 60 srun ./a", "srun"},
                                                                  {"timeout --signal=INT 60 srun ./a", "srun"},
                                                                  {"nice -n 10 nohup srun ./a", "srun"},
                                                                  {"taskset -c 0-3 srun ./a", "srun"},
                                                                  {"numactl -N 0 --membind=0 srun ./a", "srun"},
                                                                  {"sudo -u me sbatch job.sh", "sbatch"},
                                                                  {"exec ./a=b x", "a=b"},
                                                                  {"exec", "exec"},
                                                                  {"timeout 60", "60"},
                                                                  {"--x=1 srun ./a", "--x=1"},
                                                                  {"python env.py srun", "python"}}) {
    const auto script = read_script("job.sh", kFirstLines + line + "\n");
    EXPECT_EQ(script.commands.back().name, expected) << line;
    const auto words = option_words(words_of(line));
    EXPECT_TRUE(words[num_wrapper_words(words)].text.ends_with(expected)) << line;
  }
}

TEST(SlurmShell, ReadsAnyTextWithoutHarm) {
  for (const std::string text :
       {"\"", "'",     "$(",  "${",  "`",     "<<",     "((",   "case x in", "a=(",  "$",
        "\\", "f() {", "}}}", ")))", "<<E\n", "${a${b", "[[ a", "&&&&",      "esac", "done fi }"}) {
    read_shell(text);
    read_script("x", "#!/bin/sh\n#SBATCH " + text + "\n" + text);
    mistakes_in("#!/bin/sh\n#SBATCH -n2 " + text + "\nsrun " + text);
  }
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += "$(";
  read_shell(deep);
}

}  // namespace
}  // namespace yoke::slurm::check
