// `yoke slurm check` against the answers of a real srun: the CPUs of tasks, and steps that are larger than their job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "tests/slurm/yoke_check.h"
#include "tests/support/slurm.h"
#include "yoke/base/text.h"

namespace yoke::test {
namespace {

using testing::HasSubstr;

// A step has all CPUs of its job on the node, and one CPU where an option confines it.
TEST(SlurmCheckCluster, KnowsWhenATaskHasOneCpu) {
  if (const auto reason = SlurmCluster::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  SlurmCluster cluster({"--bind", "--cpus", "2", "1"});
  const std::vector<std::string> options = {"",        "--cpu-bind=none", "--cpu-bind=sockets",  "--cpu-bind=threads",
                                            "--exact", "--exclusive",     "--hint=nomultithread"};
  std::string ask;
  for (const auto& option : options) ask += "srun " + option + " nproc; ";
  const auto answer = cluster.shell("salloc -n1 -c2 sh -c '" + ask + "'");
  const auto counts = lines_of(answer.out);
  ASSERT_EQ(counts.size(), options.size()) << answer.out << answer.err;
  for (size_t i = 0; i < options.size(); ++i) {
    const auto script = cluster.folder() + "/home/cpus.sh";
    // With 4 CPUs, a core with two threads is too little too.
    std::ofstream(script) << "#!/bin/sh\n#SBATCH -t 5 --mem=1G -n1 -c4\nsrun " + options[i] + " ./x\n";
    const auto judged = run({.argv = yoke_check({"--no-cluster", "--slurm", "22.05", script})});
    EXPECT_EQ(found_in(judged.out).empty(), counts[i] == "2") << options[i] << ": " << counts[i] << judged.out;
  }
}

struct StepCase {
  const char* job;
  const char* step;
  const char* rule;  ///< Empty: the step runs, and nothing is found.
};

// What a step asks for and its job does not have is refused by the real srun.
TEST(SlurmCheckCluster, AgreesWithSrunAboutSteps) {
  if (const auto reason = SlurmCluster::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  SlurmCluster cluster({"--network", "--cpus", "8", "--gpus", "4", "3"});
  const std::vector<StepCase> cases = {
      {"-n1 -c2", "-c4", "step-over-job"},
      {"-n4 -N1", "-n1 -c4", ""},
      {"-n4", "-n4 -c2", "step-over-job"},
      {"-N2 -n4", "-N1", "step-over-job"},
      {"-N2 -n4", "-N1 -n2", ""},
      {"-N2", "-N1", ""},
      {"-N2 --ntasks-per-node=2", "-N1 -n4", "step-over-job"},
      {"--gpus=1", "--gpus=2", "step-over-job"},
      {"-n1", "--gpus=1", "step-over-job"},
      {"-n1", "--gres=none", ""},
      {"--exclusive", "--gpus=1", ""},
      {"--gpus=2 -n4", "--gpus-per-task=1 --gpu-bind=none", "step-over-job"},
      {"--gpus=4 -n4", "--gpus-per-task=1 --gpu-bind=none", ""},
      {"-N2 --gpus-per-node=1", "--gpus=3", "step-over-job"},
      {"-N2 --gpus-per-node=1", "--gpus=2", ""},
      {"-w n1 -n1", "-w n2", "step-elsewhere"},
      {"-w n1,n2 -N2", "-x n1", "step-elsewhere"},
      {"-w n1,n2 -N2", "-x n1 -N1 -n1", ""},
      {"-N2", "-r 2 -N1", "step-elsewhere"},
      {"-N2", "-r 1 -N1", ""},
      {"-n1", "--het-group=1", "step-elsewhere"},
      {"-n2 -N1", "-n1 true : -n1", "step-elsewhere"},
      {"-n2 -N2", "-n1 true : -n1", ""},
      {"-n1", "--overlap --exclusive", "overlap-with-exclusive"},
      {"-n1", "--overlap --exact", ""},
      {"-n1", "--signal=B:USR1@60", "bad-value"},
      {"-n1", "--signal=USR1@60", ""},
      {"-n1", "--parsable", "option-not-in-version"},
      {"-n1", "--mem_bind=local", "unknown-option"},
      {"-n1", "--resv-ports=a", "bad-value"},
  };
  std::string ask;
  std::vector<std::string> line = {"--no-cluster", "--slurm", "22.05"};
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto path = cluster.folder() + "/home/step" + std::to_string(i) + ".sh";
    const std::string job = cases[i].job, step = cases[i].step;
    std::ofstream(path) << "#!/bin/sh\n#SBATCH --time=10:00 --mem=1G\n#SBATCH " << job << "\nsrun " << step
                        << " true\n";
    line.push_back(path);
    ask += "salloc -Q --mem=1G " + job + " srun " + step + " true >/dev/null 2>&1 && echo ran || echo refused\n";
  }
  const auto answers = cluster.shell(ask);
  const auto said = lines_of(answers.out);
  ASSERT_EQ(said.size(), cases.size()) << answers.err;
  const auto found = Json::parse(run({.argv = yoke_check(line)}).out);
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& one = cases[i];
    SCOPED_TRACE(std::string(one.job) + " | " + one.step);
    const bool is_refused = *one.rule != 0;
    EXPECT_EQ(said[i], is_refused ? "refused" : "ran");
    std::set<std::string> rules;
    for (const auto& finding : found["findings"]) {
      if (finding["file"] == line[3 + i] && finding["severity"] != "note") rules.insert(finding["rule"]);
    }
    EXPECT_EQ(rules, is_refused ? std::set<std::string>{one.rule} : std::set<std::string>{});
  }

  // srun takes over the tasks of the job, and steps without --gpus take all GPUs.
  const auto ignored = cluster.shell("salloc -Q -N2 -n4 srun --ntasks-per-node=1 hostname | wc -l");
  EXPECT_THAT(ignored.out, HasSubstr("4"));
  EXPECT_THAT(ignored.err, HasSubstr("Ignoring --ntasks-per-node"));
  // What a second step says that does not wait while the first one runs; "at once" if it runs beside it.
  const auto second_step = [&](const std::string& job, const std::string& before, const std::string& options) {
    return cluster
        .shell("salloc -Q -N1 " + job + " sh -c 'd=$(mktemp -d); export d; " + before + " srun -n1 " + options +
               " sh -c \"touch $d/begun; until [ -e $d/end ]; do sleep 0.1; done\" & "
               "until [ -e $d/begun ]; do sleep 0.1; done; srun --immediate=1 -n1 " +
               options + " echo at once 2>&1; touch $d/end; wait; rm -r $d'")
        .out;
  };
  EXPECT_THAT(second_step("-n2 --gpus=2", "", "--exact"), HasSubstr("Requested nodes are busy"));
  EXPECT_THAT(second_step("-n2 -c2", "", ""), HasSubstr("Requested nodes are busy"));
  EXPECT_EQ(second_step("-n2 -c2", "export SRUN_CPUS_PER_TASK=2;", ""), "at once\n");
}

}  // namespace
}  // namespace yoke::test
