// `yoke slurm check` against the answers of a real sbatch and srun, and over scripts that are good and bad.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/slurm/check_values.h"
#include "tests/slurm/yoke_check.h"
#include "tests/support/slurm.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"

namespace yoke::test {
namespace {

using testing::HasSubstr;

const std::string kScripts = YOKE_SLURM_SCRIPTS;

std::vector<std::string> scripts_in(const std::string& folder) {
  std::vector<std::string> result;
  for (const auto& entry : std::filesystem::directory_iterator(kScripts + "/" + folder)) result.push_back(entry.path());
  std::sort(result.begin(), result.end());
  return result;
}

TEST(SlurmCheckCommand, FindsNothingInGoodScripts) {
  const auto scripts = scripts_in("good");
  EXPECT_GE(scripts.size(), 30U);
  for (const auto* version : {"", "22.05", "24.05", "26.05"}) {
    std::vector<std::string> words = {"--no-cluster"};
    if (*version != 0) words.insert(words.end(), {"--slurm", version});
    words.insert(words.end(), scripts.begin(), scripts.end());
    const auto result = run({.argv = yoke_check(words)});
    EXPECT_EQ(result.exit_code, 0) << version << result.err << testing::PrintToString(found_in(result.out))
                                   << result.out.substr(0, 3000);
  }
}

// The scripts that yoke writes itself have no mistakes, and only the notes of a request without memory or time.
TEST(SlurmCheckCommand, FindsNothingInScriptsOfYoke) {
  for (const auto* options : {"", "--nodes 2", "--nodes 2 --launcher yoke", "--array 0-3", "--cpus-per-rank 4"}) {
    for (const auto* site : {"lumi-g", "frontier", "amd"}) {
      const std::string yoke = YOKE_COMMAND;
      const auto result =
          run({.argv = {"sh", "-c",
                        yoke + " slurm script --site " + site +
                            " -A project_465000001 -t 1h --mem 10G "
                            "--gpus-per-node 4 " +
                            options + " -- python train.py | " + yoke + " slurm check --no-cluster -"}});
      EXPECT_EQ(result.exit_code, 0) << site << " " << options << result.err;
      EXPECT_EQ(result.out, "") << site << " " << options;
    }
  }
}

TEST(SlurmCheckCommand, FindsAllMistakesInBadScripts) {
  for (const auto& script : scripts_in("bad")) {
    const auto result = run({.argv = yoke_check({"--no-cluster", script})});
    EXPECT_EQ(result.exit_code, 1) << script;
    std::set<std::string> expected;
    const auto text = read_file(script);
    const auto begin = text.find("# expect: ") + 10;
    for (const auto word : words_of(std::string_view(text).substr(begin, text.find('\n', begin) - begin)))
      expected.emplace(word);
    EXPECT_EQ(found_in(result.out), expected) << script;
  }
}

TEST(SlurmCheckCommand, ReadsStandardInputMendsFilesAndExplains) {
  const auto folder = std::filesystem::temp_directory_path() / ("yoke-check-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const auto file = (folder / "job.sh").string();
  std::ofstream(file) << "#SBATCH -n1 --mem=1G\r\nhostname\r\n#SBATCH --time=10\r\n";
  const std::string command = YOKE_COMMAND;
  auto result = run({.argv = {"sh", "-c", command + " slurm check --no-cluster --json - <" + file}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(found_in(result.out), (std::set<std::string>{"no-shebang:1", "crlf:1", "late-directive:3"}));
  result = run({.argv = yoke_check({"--no-cluster", "--fix", file})});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(read_file(file), "#!/bin/bash\n#SBATCH -n1 --mem=1G\n#SBATCH --time=10\nhostname\n");
  std::filesystem::remove_all(folder);
  EXPECT_THAT(run({.argv = {command, "slurm", "check", "--explain", "crlf"}}).out, HasSubstr("sbatch.c"));
  EXPECT_EQ(run({.argv = {command, "slurm", "check", "--explain", "nope"}}).exit_code, 66);
  EXPECT_EQ(run({.argv = {command, "slurm", "check", "--slurm", "new", file}}).exit_code, 64);
}

TEST(SlurmCheckCommand, FixesOnlyWhatItMayWithoutLosingAnything) {
  const auto folder = std::filesystem::temp_directory_path() / ("yoke-check-fix-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const auto file = (folder / "job.sh").string();
  const std::string text = "#SBATCH --mem=1G --time=10\nhostname\n";
  const std::string fixed = "#!/bin/bash\n" + text;
  const auto fix = [&](const std::string& name) { return run({.argv = yoke_check({"--no-cluster", "--fix", name})}); };
  for (const auto& bytes : {text + std::string(1, '\0'), text + "\x1f\x8b\xff\n"}) {
    std::ofstream(file) << bytes;
    const auto result = fix(file);
    EXPECT_THAT(result.err + result.out, testing::ContainsRegex("not UTF-8 text|NUL byte"));
    EXPECT_EQ(read_file(file), bytes);
  }
  std::ofstream(file) << text;
  std::filesystem::permissions(file, std::filesystem::perms(0444));
  const auto refused = fix(file);
  EXPECT_THAT(refused.err, HasSubstr("not writable"));
  EXPECT_EQ(refused.exit_code, 1);  // the finding is still there
  std::filesystem::permissions(file, std::filesystem::perms(0750));
  std::filesystem::create_hard_link(file, folder / "other");
  EXPECT_THAT(fix(file).err, HasSubstr("hard links"));
  EXPECT_EQ(read_file(file), text);
  std::filesystem::remove(folder / "other");
  std::filesystem::create_symlink(file, folder / "link");
  EXPECT_EQ(fix((folder / "link").string()).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(file), fixed);
  EXPECT_EQ(std::filesystem::status(file).permissions(), std::filesystem::perms(0750));
  std::filesystem::remove_all(folder);
  EXPECT_EQ(fix("-").exit_code, 64);
  EXPECT_EQ(run({.argv = yoke_check({"--no-cluster", "--fix", "--", "sbatch", "-N1"})}).exit_code, 64);
  EXPECT_EQ(run({.argv = yoke_check({"--no-cluster", "/dev/zero"})}).exit_code, 64);
}

TEST(SlurmCheckCommand, ChecksTheOtherFilesIfOneCannotBeRead) {
  const auto folder = std::filesystem::temp_directory_path() / ("yoke-check-some-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const auto first = (folder / "a.sh").string(), last = (folder / "b.sh").string();
  const auto missing = (folder / "no").string();
  const std::string text = "#SBATCH --mem=1G --time=10\nhostname\n";
  std::ofstream(first) << text;
  std::ofstream(last) << text;
  auto result = run({.argv = yoke_check({"--no-cluster", first, missing, last})});
  EXPECT_EQ(result.exit_code, 66);
  EXPECT_THAT(result.err, HasSubstr("No such file"));
  EXPECT_EQ(Json::parse(result.out)["findings"].size(), 2U) << result.out;
  result = run({.argv = yoke_check({"--no-cluster", "--fix", first, missing, last})});
  EXPECT_EQ(result.exit_code, 66);
  EXPECT_EQ(read_file(last), "#!/bin/bash\n" + text);
  // Only root may give a file away, so others leave it as it is.
  const auto guest = [&](const std::string& program) {
    return std::vector<std::string>{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", program};
  };
  const std::string yoke = YOKE_COMMAND;
  if (geteuid() == 0 && run({.argv = guest("test -x " + yoke)}).exit_code == 0) {
    std::ofstream(first) << text;
    std::filesystem::permissions(folder, std::filesystem::perms(0777));
    std::filesystem::permissions(first, std::filesystem::perms(0666));
    result = run({.argv = guest(yoke + " slurm check --no-cluster --fix " + first)});
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("another user"));
    EXPECT_THAT(result.out, HasSubstr("no-shebang"));
    EXPECT_EQ(read_file(first), text);
  }
  std::filesystem::remove_all(folder);
}

// What trap-waits says: the signal arrives before the program ends, and its trap runs afterwards.
TEST(SlurmCheckCommand, TrapsOfBashWaitForTheProgramInTheForeground) {
  const auto result =
      run({.argv = {"bash", "-c", "trap 'echo trap' USR1; sh -c 'kill -USR1 $PPID; echo program'; echo after"}});
  EXPECT_EQ(result.out, "program\ntrap\nafter\n");
}

TEST(SlurmCheckCommand, UnderstandsItsOwnWords) {
  for (const auto& words :
       std::vector<std::vector<std::string>>{{"--slurm", "21.08", "-"}, {"--slurm", "26.11", "-"}, {"--sarif", "-"}}) {
    EXPECT_EQ(run({.argv = yoke_check(words)}).exit_code, 64) << testing::PrintToString(words);
  }
  for (const auto& words :
       std::vector<std::vector<std::string>>{{"/usr/bin/srun", "-N2", "-n1", "x"},
                                             {"env", "-i", "A=1", "srun", "-N2", "-n1", "x"},
                                             {"A=1", "sbatch", "-N2", "-n1", "--wrap=x"},
                                             {"sudo", "-u", "me", "sbatch", "-N2", "-n1", "--wrap=x"}}) {
    std::vector<std::string> line = {"--no-cluster", "--"};
    line.insert(line.end(), words.begin(), words.end());
    const auto result = run({.argv = yoke_check(line)});
    EXPECT_EQ(found_in(result.out), (std::set<std::string>{"fewer-tasks-than-nodes:1"}))
        << testing::PrintToString(words) << result.err;
  }
}

/// What docs/slurm-check.md shows is what the program knows.
TEST(SlurmCheckCommand, DocumentsAllRules) {
  const auto page = read_file(YOKE_SLURM_CHECK_PAGE);
  const auto rules =
      Json::parse(run({.argv = {YOKE_COMMAND, "slurm", "check", "--list-rules", "--json"}}).out)["rules"];
  EXPECT_GE(rules.size(), 40U);
  for (const auto& rule : rules) {
    const auto row = "| `" + rule["rule"].get<std::string>() + "` | " + rule["severity"].get<std::string>() + " | " +
                     rule["slurm"].get<std::string>() + " | " + rule["summary"].get<std::string>();
    EXPECT_THAT(page, HasSubstr(row));
  }
}

struct Refused {
  std::vector<std::string> words;
  const char* rule;
};

// What is flagged as an error is refused by the real programs, and the neighbour that is not flagged is accepted.
TEST(SlurmCheckCluster, AgreesWithSbatchAndSrun) {
  if (const auto reason = SlurmCluster::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  SlurmCluster cluster({"--network", "--cpus", "8", "--gpus", "4", "3"});
  const auto job = cluster.folder() + "/home/ok.sh";
  std::ofstream(job) << "#!/bin/sh\ntrue\n";
  const std::vector<Refused> refused = {
      {{"-N2", "-n8", "--ntasks-per-node=2"}, "tasks-over-nodes"},
      {{"-N1", "-n4", "--ntasks-per-node=2"}, "tasks-over-nodes"},
      {{"--gpus-per-node=5"}, "gpus-over-node"},
      {{"--gpus=13"}, "gpus-over-node"},
      {{"--gpus-per-task=5", "-n1"}, "gpus-over-node"},
      {{"--gpus-per-task=1", "-n13"}, "gpus-over-node"},
      {{"--mincpus=9"}, "cpus-over-node"},
      {{"--cpus-per-gpu=4", "--gpus=4", "-N1"}, "cpus-over-node"},
      {{"--mem-per-cpu=9G"}, "memory-over-node"},
      {{"--gpus=5", "-N1"}, "gpus-over-node"},
      {{"-n25"}, "cpus-over-node"},
      {{"-n9", "-N1"}, "cpus-over-node"},
      {{"-n4", "-c8"}, "cpus-over-node"},
      {{"-N2", "--ntasks-per-node=9"}, "cpus-over-node"},
      {{"-t", "0"}, "time-over-limit"},
      {{"--gres=gpu:h100:1"}, "unknown-gpu-type"},
      {{"--array=0-100000"}, "array-over-limit"},
      {{"--gpus-per-task=1", "-n2", "--gpus-per-node=4"}, "gpus-per-task-mismatch"},
      {{"-N1", "--gpus-per-node=4", "--gpus-per-task=2"}, "gpus-per-task-mismatch"},
      {{"-n3", "--gpus-per-node=3", "--gpus-per-task=2"}, "gpus-per-task-mismatch"},
      {{"-N1", "-n8", "--exclusive", "--gpus-per-node=4", "--gpus-per-task=1"}, "gpus-per-task-mismatch"},
      {{"-N1", "-c2", "--gpus-per-task=1"}, "option-needs-another"},
      {{"-N1-2", "--gpus-per-task=1"}, "option-needs-another"},
      {{"-N1", "-n8", "--gpus-per-task=1", "--gpus-per-node=4"}, "gpus-per-task-mismatch"},
      {{"--cpus-per-gpu=2", "-c2", "--gpus=1"}, "cpus-per-gpu-with-cpus-per-task"},
      {{"--gpus=4", "--gpus-per-task=1", "-n2"}, "gpus-tasks-mismatch"},
      {{"-N2", "--gpus=3", "--gpus-per-node=2"}, "gpus-not-multiple"},
      {{"-N2", "--gpus=8", "--gpus-per-node=2"}, "gpus-not-multiple"},
      {{"--gpus=2", "--ntasks-per-gpu=1", "--ntasks-per-node=2"}, "ntasks-per-gpu-conflict"},
      {{"--gpus=2", "--ntasks-per-gpu=1", "--gpus-per-task=1"}, "ntasks-per-gpu-conflict"},
      {{"--gpus=1", "-N2"}, "gpus-fewer-than-nodes"},
      {{"--gpus=4", "--gpus-per-task=2", "-N1"}, "gpus-tasks-mismatch"},
      {{"--gpus=4", "--gpus-per-task=3"}, "gpus-tasks-mismatch"},
      {{"--ntasks-per-gpu=2", "-n3"}, "option-needs-another"},
      {{"-w", "n1,n2", "-N1"}, "nodelist-conflict"},
      {{"-w", "n1", "-x", "n1"}, "nodelist-conflict"},
      {{"--mem=1G", "--mem-per-cpu=1G"}, "memory-options-conflict"},
      {{"-c9"}, "cpus-over-node"},
      {{"--mem=99G"}, "memory-over-node"},
      {{"-N4"}, "nodes-over-limit"},
      {{"-t", "2:00:00"}, "time-over-limit"},
      {{"-p", "nope"}, "unknown-partition"},
      {{"--gres=gpus:1"}, "gres-name"},
      {{"--gres=gpu:a100:4", "--gpus-per-node=4"}, "gres-type-and-count"},
      {{"--gres=gpu:a100:4", "--gpus=4"}, "gres-type-and-count"},
      {{"--gres=gpu:a100:2", "--gpus-per-task=1", "-n2"}, "gres-type-and-count"},
      {{"--gres=nvme:1"}, "unknown-gres"},
      {{"--gpus-per-node=a100:5"}, "gpus-over-node"},
      {{"-N1", "--ntasks-per-node=8", "--gpus-per-task=1"}, "gpus-over-node"},
      {{"--ntasks-per-node=9"}, "cpus-over-node"},
      {{"-N2", "--ntasks-per-node=1", "--gpus-per-node=2", "--gpus-per-task=1"}, "gpus-per-task-mismatch"},
      {{"--mem-per-gpu=1G"}, "per-gpu-without-gpus"},
      {{"--ntasks-per-gpu=2"}, "per-gpu-without-gpus"},
      {{"-N1", "-n8", "--gpus-per-node=2", "--ntasks-per-gpu=2"}, "ntasks-per-gpu-overrides"},
      {{"-N", "2-1"}, "bad-value"},
      {{"-n", "abc"}, "bad-value"},
      {{"--time=10m"}, "bad-value"},
      {{"--mem=16GiB"}, "bad-value"},
      {{"--array=10-1"}, "bad-value"},
      {{"--signal=FOO@3"}, "bad-value"},
      {{"--gpu-bind=foo"}, "bad-gpu-bind"},
      {{"--nodse=2"}, "unknown-option"},
      {{"--bogus=1"}, "unknown-option"},
      {{"--cpu-bind=none"}, "option-of-other-program"},
      {{"--gpu=1"}, "ambiguous-option"},
      {{"--hold=yes"}, "unwanted-value"},
      {{"--tres-per-task=gres:gpu:1"}, "option-not-in-version"},
      {{"--core-spec=1", "--thread-spec=1"}, "core-and-thread-spec"},
      {{"--quiet", "--verbose"}, "quiet-and-verbose"},
      {{"--time-min=50", "--time=10"}, "time-min-over-time"},
  };
  const std::vector<std::vector<std::string>> accepted = {
      {"-N2", "-n4", "--ntasks-per-node=2"},
      {"-N1", "-n2", "--gpus-per-task=1", "--gpus-per-node=2"},
      {"-N2", "--gpus=4", "--gpus-per-node=2"},
      {"-N1-2", "--gpus=1"},
      {"-N2", "--gpus=4", "--gpus-per-task=2"},
      {"-N1", "-c2", "--gpus=4", "--gpus-per-task=2"},
      {"-N1", "-n1", "-c2", "--gpus-per-task=1"},
      {"-N2", "-n4", "--gpus-per-node=4", "--gpus-per-task=1"},
      {"-N3", "-n6", "--gpus-per-node=4", "--gpus-per-task=1"},
      {"-N1", "-n2", "--exclusive", "--gpus-per-node=4", "--gpus-per-task=1"},
      {"--cpus-per-gpu=4", "--gpus=4"},
      {"--gpus=4", "--gpus-per-task=4"},
      {"-w", "n1,n2", "-N1-2"},
      {"--gpus=2", "--gpus-per-task=1", "-n2"},
      {"-c8"},
      {"-n24"},
      {"-n3", "-c8"},
      {"--gpus=12", "-N3"},
      {"--mem=4G"},
      {"-N3"},
      {"-t", "30"},
      {"-p", "main"},
      {"--gres=gpu:1"},
      {"--gres=gpu:a100:4", "--gpus-per-node=a100:4"},
      {"-N2", "--gpus-per-node=2", "--gpus-per-task=1"},
      {"--gres=gpu"},
      {"-N", "1-2"},
      {"--array=1-10%2"},
      {"--output="},
      {"--job-name="},
      {"--signal=USR1@60"},
      {"--gpus=1", "--gpu-bind=closest"},
      {"--parti=main"},
      {"--exclusive"},
      {"--time-min=5", "--time=10"},
      {"--mem=4gb"},
      {"--mem=+1G"},
      {"-n", " 4"},
      {"-n", "8", "--gpus=4", "--ntasks-per-gpu=2"}};
  // Asking the cluster takes 0.1 s, so only rules about limits do.
  const auto judge = [&](const std::vector<std::string>& words, int& exit_code, bool asks_cluster = false) {
    std::vector<std::string> line = {"--no-cluster", "--slurm", "22.05", "--", "sbatch"};
    if (asks_cluster) line.erase(line.begin(), line.begin() + 3);
    line.insert(line.end(), words.begin(), words.end());
    const auto result = asks_cluster ? cluster.run(yoke_check(line)) : run({.argv = yoke_check(line)});
    exit_code = result.exit_code;
    return found_in(result.out);
  };
  const auto submit = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"sbatch", "--test-only"});
    words.push_back(job);
    return cluster.run(words);
  };
  for (const auto& [words, rule] : refused) {
    SCOPED_TRACE(testing::PrintToString(words));
    EXPECT_NE(submit(words).exit_code, 0);
    int exit_code = 0;
    const std::string_view id = rule;
    const bool asks_cluster =
        id.find("-over-") != id.npos || id.starts_with("unknown-p") || id.starts_with("unknown-g");
    EXPECT_EQ(judge(words, exit_code, asks_cluster).count(std::string(rule) + ":1"), 1U) << rule;
    EXPECT_EQ(exit_code, 1);
  }
  for (const auto& words : accepted) {
    SCOPED_TRACE(testing::PrintToString(words));
    EXPECT_EQ(submit(words).exit_code, 0);
    int exit_code = 1;
    EXPECT_TRUE(judge(words, exit_code).empty());
    EXPECT_EQ(exit_code, 0);
  }

  // Values, each in a script of its own.
  std::vector<std::string> line = {"--no-cluster", "--slurm", "22.05"};
  std::string ask;
  std::vector<std::pair<std::string, std::string>> scripts;
  for (const auto* values : {&kRefusedValues, &kTakenValues}) {
    for (const auto& value : *values) {
      const auto path = cluster.folder() + "/home/value" + std::to_string(scripts.size()) + ".sh";
      std::ofstream(path) << "#!/bin/sh\n#SBATCH --time=10:00 --mem=1G\n#SBATCH " + value + "\ntrue\n";
      line.push_back(path);
      ask += "sbatch --test-only " + path + " >/dev/null 2>&1 && echo taken || echo refused\n";
      scripts.emplace_back(path, value);
    }
  }
  const auto answers = cluster.shell(ask);
  const auto said = lines_of(answers.out);
  ASSERT_EQ(said.size(), scripts.size()) << answers.err;
  std::map<std::string, std::string> severities;
  const auto found = Json::parse(run({.argv = yoke_check(line)}).out);
  for (const auto& finding : found["findings"]) {
    if (finding["line"] == 3) severities[finding["file"]] = finding["severity"];
  }
  for (size_t i = 0; i < scripts.size(); ++i) {
    const auto& [path, value] = scripts[i];
    const bool is_refused = i < kRefusedValues.size();
    EXPECT_EQ(said[i], is_refused ? "refused" : "taken") << value;
    EXPECT_EQ(severities[path] == "error", is_refused) << value << ": " << severities[path];
  }

  // A script that is not there, a folder that is made too late, and lines of PBS.
  EXPECT_NE(cluster.run({"sbatch", "--test-only", "nofile.sh"}).exit_code, 0);
  const auto missing = run({.argv = yoke_check({"--no-cluster", "--", "sbatch", "nofile.sh"})});
  EXPECT_EQ(found_in(missing.out), (std::set<std::string>{"script-missing:1"}));
  EXPECT_EQ(found_in(run({.argv = yoke_check({"--no-cluster", "--", "sbatch", job, "--nodes=2"})}).out),
            (std::set<std::string>{"option-after-script:0"}));
  const auto pbs = cluster.shell("cd " + cluster.folder() +
                                 "/home; printf '#!/bin/sh\\n#SBATCH -N1\\ntrue\\n#PBS -l nodes=2\\n' >pbs.sh\n"
                                 "printf '#!/bin/sh\\n#SBATCH -o new/%%j\\nmkdir -p new\\n' >late.sh\n"
                                 "scontrol show job $(sbatch -H --parsable pbs.sh) | grep -o 'NumNodes=[0-9]*'\n"
                                 "sbatch -W late.sh >/dev/null || echo failed; ls -d new || echo none");
  EXPECT_THAT(pbs.out, HasSubstr("NumNodes=2")) << pbs.err;
  EXPECT_THAT(pbs.out, HasSubstr("failed\nnone"));
  const auto elsewhere = cluster.shell("salloc -N2 -w n[1-2] srun -w n3 true && echo ran");
  EXPECT_THAT(elsewhere.err, HasSubstr("Requested node configuration is not available"));

  // Words of --cpu-bind, without task/affinity.
  const std::vector<std::string> taken_binds = {"cores,threads", "mask_cpu:0x1,cores", "mask_cpu:0x1,", "maskcpu=0x1",
                                                "map_cpu:0,,1"};
  const std::vector<std::string> refused_binds = {"map_cpu:0x3", "mask_cpu:0X1", "map_ldom:x",
                                                  "cores,foo",   ",cores",       "n"};
  std::string binds;
  for (const auto* values : {&taken_binds, &refused_binds}) {
    for (const auto& value : *values) {
      binds += "srun --cpu-bind='" + value + "' true 2>/dev/null && echo taken || echo refused; ";
    }
  }
  const auto bound = cluster.shell("salloc sh -c \"" + binds + "\"");
  const auto said_of_binds = lines_of(bound.out);
  ASSERT_EQ(said_of_binds.size(), taken_binds.size() + refused_binds.size()) << bound.out << bound.err;
  for (size_t i = 0; i < said_of_binds.size(); ++i) {
    const bool is_taken = i < taken_binds.size();
    const auto& value = is_taken ? taken_binds[i] : refused_binds[i - taken_binds.size()];
    EXPECT_EQ(said_of_binds[i], is_taken ? "taken" : "refused") << value;
    const auto judged = run({.argv = yoke_check({"--no-cluster", "--", "srun", "--cpu-bind=" + value, "x"})});
    EXPECT_EQ(judged.out.find("\"error\"") == std::string::npos, is_taken) << value << judged.out;
  }
  const auto larger = cluster.shell("salloc -n2 srun -n4 true && echo ran");
  EXPECT_THAT(larger.err, HasSubstr("More processors requested than permitted"));
  const auto differing = cluster.shell("salloc -N1 --gres=gpu:2 --gpus-per-node=4 srun true && echo ran");
  EXPECT_THAT(differing.err, HasSubstr("more than the job's"));

  const auto other_type = cluster.shell("salloc --gres=gpu:a100:2 srun --gres=gpu:h100:1 true && echo ran");
  EXPECT_THAT(other_type.err, HasSubstr("not found in the job"));
  EXPECT_EQ(submit({"--gpus=1", "--gpu-bind=nearest"}).exit_code, 0);  // 22.05 takes it for none
  int code = 1;
  EXPECT_TRUE(judge({"--gpus=1", "--gpu-bind=nearest"}, code).empty());

  // What is flagged as silently wrong is so.
  const auto step = cluster.run({"srun", "-N1", "-n4", "--ntasks-per-node=2", "true"});
  EXPECT_EQ(step.exit_code, 0);
  EXPECT_THAT(step.err, HasSubstr("Ignoring --ntasks-per-node"));
  const auto fewer = submit({"-N2", "-n1"});
  EXPECT_EQ(fewer.exit_code, 0);
  EXPECT_THAT(fewer.err, HasSubstr("setting nnodes to 1"));
  // --gres counts, and the variable says something else; --ntasks-per-gpu makes 8 tasks. `sbatch -W` polls: both at
  // once.
  const auto output = cluster.folder() + "/home/out";
  const auto several = cluster.folder() + "/home/several.sh";
  std::ofstream(several) << R"(#!/bin/bash
#SBATCH -N2 -n3 --ntasks-per-node=2
echo "$SLURM_NTASKS tasks, and $SLURM_NTASKS_PER_NODE on each node: $SLURM_TASKS_PER_NODE"
export RANK=$SLURM_PROCID
srun -n2 -N1 sh -c 'echo "rank $RANK"'
srun -n1 -N1 --pty bash
cd $(dirname $SLURM_CONF)/../home
srun -n1 -N1 sh -c 'touch begun; until [ -e never ]; do sleep 0.1; done' &
until [ -e begun ] || ! kill -0 $!; do sleep 0.1; done
)";
  const auto jobs = cluster.shell(
      "sbatch -W -o " + output +
      ".1 -N1 --gres=gpu:2 --gpus-per-node=1 --wrap "
      "'echo sees $CUDA_VISIBLE_DEVICES says $SLURM_GPUS_PER_NODE' >&2 & sbatch -W -o " +
      output +
      ".2 --gpus=4 --ntasks-per-gpu=2 -n4 --wrap 'echo says $SLURM_NTASKS; srun hostname | wc -l' >&2 & sbatch -W -o " +
      output +
      ".3 -N2 --gpus-per-node=a100:2 --no-requeue --wrap 'echo \"[$SLURM_NTASKS] tasks, $SLURM_GPUS_PER_NODE\"; "
      "scontrol requeue $SLURM_JOB_ID; true' >&2 & sbatch -W -o " +
      output + ".4 --array=1-2%1 --wrap 'echo element $SLURM_ARRAY_TASK_ID' >&2 & sbatch -W -o " + output +
      ".5 -N2 --hint=nomultithread --export=NONE --wrap 'echo with hint $SLURM_NTASKS; srun env' >&2 & sbatch -W -o " +
      output + ".6 " + several + " >&2; wait; cat " + output + ".[1-6]");
  EXPECT_THAT(jobs.out, testing::ContainsRegex("sees [0-3],[0-3] says 1\n")) << jobs.err;  // the other jobs may have 0
  EXPECT_THAT(jobs.out, HasSubstr("says 4\n8\n"));
  EXPECT_THAT(jobs.out, HasSubstr("[] tasks, a100:2\n"));
  EXPECT_THAT(jobs.out, HasSubstr("Requested operation is presently disabled"));
  EXPECT_THAT(jobs.out, testing::Not(HasSubstr("element 1")));  // the second one emptied the file
  EXPECT_THAT(jobs.out, HasSubstr("element 2\n"));
  EXPECT_THAT(jobs.out, HasSubstr("with hint 2\n"));
  EXPECT_THAT(jobs.out, HasSubstr("execve(): env: No such file"));  // not even PATH
  EXPECT_THAT(jobs.out, HasSubstr("3 tasks, and 2 on each node: 2(x2)\n"));
  EXPECT_THAT(jobs.out, HasSubstr("rank 0\nrank 0\n"));
  EXPECT_THAT(jobs.out, HasSubstr("Not using a pseudo-terminal"));
  EXPECT_THAT(jobs.out,
              testing::ContainsRegex("STEP [0-9]+.[0-9]+ ON n[0-9] CANCELLED|Job step aborted"));  // with its job
  const auto held = cluster.shell(
      "cd " + cluster.folder() +
      "/home; printf '#!/bin/sh\\n#SBATCH -n1\\n#SBATCH hetjob\\n#SBATCH -n1\\n' >het.sh; "
      "for options in '--requeue --no-requeue' '-N2 --tasks=3'; do scontrol show job $(sbatch -H --parsable $options " +
      job + ") | grep -o 'Requeue=[0-9]\\|NumTasks=[0-9]*'; done; sbatch -H --array=1-2 het.sh; sbatch --wrap=true " +
      job + "; scancel --state=PENDING");
  EXPECT_THAT(held.out, HasSubstr("Requeue=0"));
  EXPECT_THAT(held.out, HasSubstr("NumTasks=6"));  // three on each node
  EXPECT_THAT(held.err, HasSubstr("Invalid job array specification"));
  EXPECT_THAT(held.err, HasSubstr("Script arguments not permitted with --wrap"));
  const auto parts = cluster.shell(
      "salloc -Q -N3 sh -c 'srun --het-group=0 -N1 true : --het-group=1 -N2 true && echo both; "
      "srun --het-group=1 true || echo refused'");
  EXPECT_THAT(parts.out, HasSubstr("both\nrefused\n")) << parts.err;
  int exit_code = 0;
  EXPECT_EQ(judge({"-N2", "-n1"}, exit_code), (std::set<std::string>{"fewer-tasks-than-nodes:1"}));
  EXPECT_EQ(judge({"--gres=gpu:2", "--gpus-per-node=1"}, exit_code), (std::set<std::string>{"gres-differs:1"}));
  EXPECT_EQ(judge({"--gpus=4", "--ntasks-per-gpu=2", "-n4"}, exit_code),
            (std::set<std::string>{"ntasks-per-gpu-overrides:1"}));
}

}  // namespace
}  // namespace yoke::test
