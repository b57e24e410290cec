// Tests `yoke slurm submit`, `script` and `site` on a real Slurm: a job that stops before its time is over, is
// preempted or loses a node goes on from its newest checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "tests/support/lines.h"
#include "tests/support/slurm.h"

namespace yoke::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

// A rank that counts to $2. It saves each fifth step, and the last one before it ends by a signal, like a training.
constexpr const char* kCounter = R"sh(#!/bin/bash
file=$1/checkpoint.$RANK
step=$(cat "$file" 2>/dev/null || echo 0)
stop=''
trap 'stop=1' USR1 TERM
save() { echo "$step" >"$file.tmp" && mv "$file.tmp" "$file"; }
echo "begins after $step on $(hostname)"
while [ "$step" -lt "$2" ]; do
  step=$((step + 1))
  echo "$step" >>"$1/steps.$RANK"
  sleep 0.05
  if [ -n "$stop" ]; then save; exit 0; fi
  if [ $((step % 5)) = 0 ]; then save; fi
done
save
)sh";

class SlurmSubmit : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = SlurmCluster::why_not(); !reason.empty()) GTEST_SKIP() << reason;
    folder_.write("counter", kCounter, true);
  }

  /// Runs `yoke slurm WORDS` in the test's folder, with the user's files there too.
  Result slurm(const SlurmCluster& cluster, const std::string& words) const {
    return cluster.shell("cd " + folder_.path() + " && export HOME=$PWD XDG_STATE_HOME=$PWD/state PATH=$PATH:" +
                         std::string(YOKE_COMMAND).substr(0, std::string(YOKE_COMMAND).rfind('/')) + " && exec " +
                         std::string(YOKE_COMMAND) + " slurm " + words);
  }
  /// Submits and returns the job's id.
  std::string submit(const SlurmCluster& cluster, const std::string& words) const {
    const auto result = slurm(cluster, "submit --json " + words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto json = nlohmann::json::parse(result.out, nullptr, false);
    return json.is_object() ? json.value("job", "") : "";
  }
  std::string output(const std::string& job) const { return slurp(folder_.path("slurm-" + job + ".out")); }

  /// Lets a requeued job start at once; Slurm otherwise waits until the credentials of its last start have expired.
  static void start_now(SlurmCluster& cluster, const std::string& job) {
    ASSERT_TRUE(cluster.wait_for_state(job, "PENDING"));
    // The end of the last start must have reached all nodes, or it would end this one: the reason why Slurm waits.
    ASSERT_TRUE(wait_until([&] {
      return cluster.run({"sinfo", "-h", "-p", "main", "-o", "%D %T"}).out == "2 idle\n";
    }));
    // A node refuses a credential of the second in which it ended the last start.
    std::this_thread::sleep_for(milliseconds(2000));  // clock: two of Slurm's seconds, and nothing else, must pass
    EXPECT_EQ(cluster.run({"scontrol", "update", "JobId=" + job, "StartTime=now"}).exit_code, 0);
  }
  bool wait_for(const std::string& job, const std::string& text) const {
    return wait_until([&] { return output(job).find(text) != std::string::npos; }, milliseconds(90'000));
  }

  TemporaryFolder folder_;
};

TEST_F(SlurmSubmit, RunsRanksAndShowsWhatTheyPrint) {
  SlurmCluster cluster({"--network", "--cpus", "8", "--gpus", "4", "2"});
  const auto result = slurm(cluster,
                            "submit -N 2 --gpus-per-node 2 -t 5m --wait -- sh -c "
                            "'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $CUDA_VISIBLE_DEVICES "
                            "$SLURM_CPUS_PER_TASK at $MASTER_ADDR:$MASTER_PORT on $(hostname)'");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("job 1 (sh), site yoke (what Slurm says of its nodes)\n"));
  EXPECT_THAT(result.out, HasSubstr("output  " + folder_.path("slurm-1.out") + "\n"));
  // Each rank sees both GPUs of its node, and has a quarter of the node's CPUs, a GPU's share.
  EXPECT_THAT(output("1"), HasSubstr("0: 0/4 0/2 0 0,1 2 at n1:10001 on n1\n"));
  EXPECT_THAT(output("1"), HasSubstr("3: 3/4 1/2 1 0,1 2 at n1:10001 on n2\n"));
  const auto note = nlohmann::json::parse(slurp(folder_.path("state/yoke/slurm/1/job.json")), nullptr, false);
  ASSERT_TRUE(note.is_object());
  EXPECT_EQ(note["script"], folder_.path("slurm-1.sh"));
  EXPECT_THAT(slurp(folder_.path("slurm-1.sh")), HasSubstr("#SBATCH --gpus-per-node=2"));

  // A rank that fails ends the others, and the job has its status; a launcher sees one rank on each node.
  const auto failed =
      slurm(cluster, "submit -N 2 --gpus-per-node 1 -t 5m --wait -- sh -c '[ $RANK = 0 ] || exit 7; sleep 60'");
  // srun returns the highest status: that of the ranks it ended, on a busy machine by SIGKILL after SIGTERM.
  EXPECT_THAT(failed.exit_code, AnyOf(143, 137)) << failed.err;
  EXPECT_THAT(output("2"), HasSubstr("Exited with exit code 7"));
  const auto launched = slurm(cluster,
                              "submit -N 2 --gpus-per-node 2 -t 5m --wait --launcher yoke --file-per-rank -- sh -c "
                              "'echo $RANK/$WORLD_SIZE on $(hostname)'");
  EXPECT_EQ(launched.exit_code, 0) << launched.err << output("3");
  const auto lines = slurp(folder_.path("slurm-3-node0.out")) + slurp(folder_.path("slurm-3-node1.out"));
  EXPECT_THAT(lines, HasSubstr("0/4 on n1\n"));
  EXPECT_THAT(lines, HasSubstr("3/4 on n2\n"));
  EXPECT_THAT(slurm(cluster, "logs 3").out, testing::AllOf(HasSubstr("node 0: "), HasSubstr("3/4 on n2\n")));

  // Refusals have Slurm's words and what to give instead; nothing is left.
  const auto refused = slurm(cluster, "submit -t 5h -- true");
  EXPECT_EQ(refused.exit_code, 69);
  EXPECT_THAT(refused.err, HasSubstr("give a shorter --time"));
  EXPECT_THAT(slurm(cluster, "submit -p nope -t 1m -- true").err,
              HasSubstr("there is no partition nope here; there are: main"));
  EXPECT_THAT(slurm(cluster, "submit --gpus-per-node 9 -t 1m -- true").err, HasSubstr("a node of yoke has 4 GPUs"));
  const auto dry = slurm(cluster, "submit -t 5m --dry-run -- true");
  EXPECT_THAT(dry.err, HasSubstr("nothing is submitted"));
  EXPECT_THAT(dry.err, HasSubstr("to start at"));
  EXPECT_EQ(dry.out, slurm(cluster, "script -t 5m -- true").out);
  EXPECT_EQ(cluster.run({"squeue", "-h"}).out, "");

  // The exit status of an array is that of the task that failed first.
  const auto array = slurm(cluster,
                           "submit -a 0-1 --gpus-per-node 0 -t 5m --wait -- sh -c 'exit "
                           "$((SLURM_ARRAY_TASK_ID == 1 ? 9 : 0))'");
  EXPECT_EQ(array.exit_code, 9) << array.err;

  // The script runs without yoke, and arrays have a file for each job.
  EXPECT_EQ(
      cluster
          .shell("cd " + folder_.path() + " && " + YOKE_COMMAND +
                 " slurm script -a 1-2 --gpus-per-node 0 -t 5m -- sh -c 'echo index $SLURM_ARRAY_TASK_ID' >a.sh && "
                 "env PATH=/usr/bin:/bin sbatch --wait a.sh")
          .exit_code,
      0);
  EXPECT_EQ(cluster.shell("cat " + folder_.path() + "/slurm-*_2.out").out, "index 2\n");

  const auto site = slurm(cluster, "site detect");
  EXPECT_THAT(site.out, HasSubstr("clusters = [\"yoke\"]"));
  EXPECT_THAT(site.out, HasSubstr("gpus = 4\nvendor = \"nvidia\"\ncpus = 8\ncpus_per_gpu = 2\n"));
  folder_.write(".config/yoke/sites/mine.toml", site.out);
  EXPECT_THAT(slurm(cluster, "site show").out, HasSubstr("mine.toml, chosen by ClusterName yoke"));

  // A dry run has the script also if Slurm refuses it.
  const auto late = slurm(cluster, "submit -t 5h --dry-run -- true");
  EXPECT_EQ(late.exit_code, 69);
  EXPECT_THAT(late.out, HasSubstr("#SBATCH --time=5:00:00"));
  EXPECT_THAT(late.err, HasSubstr("give a shorter --time"));

  // A signal during the submission acts after the user was told about the job.
  folder_.write("slow/sbatch", "#!/bin/sh\ntouch \"${0%/*}/begun\"; sleep 0.5; exec /usr/bin/sbatch \"$@\"\n", true);
  const auto told = cluster.shell(
      "cd " + folder_.path() + "; export HOME=$PWD PATH=$PWD/slow:$PATH; " + YOKE_COMMAND +
      " slurm submit -t 5m -- true & until [ -e slow/begun ]; do sleep 0.05; done; kill -TERM $!; wait $!");
  EXPECT_EQ(told.exit_code, 143);
  EXPECT_THAT(told.out, testing::AllOf(HasSubstr("job "), HasSubstr("next    yoke slurm logs")));
}

TEST_F(SlurmSubmit, ShowsTheFilesOfRanks) {
  SlurmCluster cluster({"--network", "--cpus", "8", "--gpus", "4", "2"});
  const auto result = slurm(cluster,
                            "submit -N 2 --gpus-per-node 4 -t 5m --wait --file-per-rank -- sh -c "
                            "'echo on $(hostname)'");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto logs = slurm(cluster, "logs 1");
  EXPECT_EQ(logs.exit_code, 0) << logs.err;
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_THAT(logs.out, HasSubstr("rank " + std::to_string(rank) + ": on n" + (rank < 4 ? "1" : "2") + "\n"));
  }
  EXPECT_EQ(slurm(cluster, "logs -f 1").out, logs.out);
  EXPECT_THAT(slurm(cluster, "resume 1").out, HasSubstr("goes on in the files of its ranks"));
}

TEST_F(SlurmSubmit, GoesOnAfterTheSignalBeforeTheEnd) {
  SlurmCluster cluster({"--network", "--cpus", "8", "--gpus", "4", "2"});
  const auto job = submit(cluster, "-N 2 --gpus-per-node 1 -t 5m -- ./counter $PWD 150");
  for (const auto* rank : {"0", "1"}) ASSERT_TRUE(wait_for(job, std::string(rank) + ": begins after 0"));
  ASSERT_TRUE(wait_until([&] { return slurp(folder_.path("steps.1")).find("7\n") != std::string::npos; },
                         milliseconds(90'000)));
  // What Slurm does by --signal=B:USR1@120 when the end comes near.
  ASSERT_EQ(cluster.run({"scancel", "--batch", "--signal=USR1", job}).exit_code, 0);
  start_now(cluster, job);
  ASSERT_TRUE(cluster.wait_for_state(job, "COMPLETED")) << output(job) << cluster.story_of(job);
  EXPECT_THAT(output(job), HasSubstr("stopped in time; the job goes back into the queue (restart 1 of 20)"));
  // No step is lost and none is done twice, on any rank.
  std::string all;
  for (int step = 1; step <= 150; ++step) all += std::to_string(step) + '\n';
  EXPECT_EQ(slurp(folder_.path("steps.0")), all);
  EXPECT_EQ(slurp(folder_.path("steps.1")), all);
  EXPECT_THAT(output(job), Not(HasSubstr("1: begins after 0 on n2\n1: begins after 0")));
}

// What Slurm does by --signal=B:USR1@120 would end a program that does not know USR1.
TEST_F(SlurmSubmit, ToldToStopAreRanksThatHandleTheSignalAlone) {
  SlurmCluster cluster({"--cpus", "8", "1"});
  ASSERT_EQ(cluster.run({"chmod", "777", folder_.path()}).exit_code, 0);
  for (const std::string launcher : {"", "--launcher yoke "}) {
    folder_.write("runs", "");
    const auto job =
        submit(cluster, launcher + "--ranks-per-node 2 -t 5m -- sh -c " +
                            "'echo begun; echo $RANK >>runs; until [ -e go ]; do sleep 0.1; done; echo done'");
    ASSERT_TRUE(wait_until([&] { return lines_of(slurp(folder_.path("runs"))).size() == 2; }, milliseconds(90'000)));
    ASSERT_EQ(cluster.run({"scancel", "--batch", "--signal=USR1", job}).exit_code, 0);
    ASSERT_TRUE(wait_for(job, "the ranks do not handle USR1")) << output(job);
    folder_.write("go", "");
    // They end by themselves, and are not started again.
    ASSERT_TRUE(cluster.wait_for_state(job, "COMPLETED")) << output(job) << cluster.story_of(job);
    EXPECT_THAT(output(job), Not(HasSubstr("goes back into the queue")));
    std::filesystem::remove(folder_.path("go"));
  }
}

TEST_F(SlurmSubmit, WhatTheScriptSaysCountsMoreThanVariablesOfSbatch) {
  SlurmCluster cluster({"--cpus", "8", "--gpus", "4", "1"});
  const auto with = [&](const std::string& variables, const std::string& words) {
    return cluster.shell("cd " + folder_.path() + " && export HOME=$PWD " + variables + " && exec " + YOKE_COMMAND +
                         " slurm " + words);
  };
  const auto result =
      with("SBATCH_EXPORT=NONE SBATCH_TIMELIMIT=1 SBATCH_GPUS_PER_NODE=1 SBATCH_OUTPUT=/tmp/%j SBATCH_NO_REQUEUE=1",
           "submit --gpus-per-node 2 -t 5m --wait -- sh -c 'echo $RANK sees $CUDA_VISIBLE_DEVICES; squeue -h -j "
           "$SLURM_JOB_ID -o %l'");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(output("1"), testing::AllOf(HasSubstr("0 sees 0,1"), HasSubstr("1 sees 0,1"), HasSubstr("5:00")));
  EXPECT_THAT(with("SBATCH_PARTITION=nope", "submit --gpus-per-node 1 -t 5m -- true").err,
              HasSubstr("there is no partition nope here"));
  // sbatch would wait for the sweep, and another one would be submitted, or on another cluster.
  const auto sweep =
      with("SBATCH_WAIT=1 SBATCH_DEBUG=1 SBATCH_ARRAY_INX=7 SBATCH_CLUSTERS=none", "array --param a=300 -- sleep {a}");
  EXPECT_EQ(sweep.exit_code, 0) << sweep.err;
  EXPECT_THAT(sweep.out, HasSubstr("job 2: 1 task in"));
  cluster.run({"scancel", "2"});
  // A script of `yoke slurm script` works after --export=NONE, too.
  const auto script =
      with("A=b", "script --gpus-per-node 1 -t 5m -- true >none.sh && sbatch --wait --export=NONE none.sh");
  EXPECT_EQ(script.exit_code, 0) << script.err << output("3");
  EXPECT_EQ(std::filesystem::status(folder_.path("slurm-1.sh")).permissions(), std::filesystem::perms(0600));
}

TEST_F(SlurmSubmit, RefusesOutputsThatSlurmCouldNotWrite) {
  SlurmCluster cluster({"--cpus", "4", "1"});
  const auto refused = [&](const std::string& words, const char* why) {
    const auto result = slurm(cluster, "submit -t 5m " + words + " -- true");
    EXPECT_EQ(result.exit_code, 64) << words;
    EXPECT_THAT(result.err, HasSubstr(why));
  };
  refused("-o nowhere/%j.out", "there is no folder nowhere");
  refused("--sbatch=--error=nowhere/%j.err", "--error nowhere/%j.err: there is no folder nowhere");
  EXPECT_THAT(slurm(cluster, "array --sbatch '-e nowhere/%a' --param a=1 -- echo {a}").err, HasSubstr("give %a/%a"));
  refused("-o '$HOME/x.out'", "write the whole path");
  refused("-o '~/x.out'", "write the whole path");
  refused("-o /tmp", "it is a folder; name a file in it");
  refused("-o 'a\\%j.out'", "Slurm drops backslashes");
  refused("-J a/b -o %x.out", "use a name without /");
  refused("--env RANK=5", "--env RANK");
  refused("--sbatch=--distribution=cyclic", "follow each other");
  refused("--sbatch=--chdir=/tmp", "`cd` before");
  refused("--sbatch=--wait", "yoke's --wait");
  // Habits of sbatch have other forms, and Slurm does not name the limit of indices.
  refused("-n 4", "-n 4 is an option of sbatch: give nodes by -N and ranks of each by --ranks-per-node");
  refused("-c4", "give --cpus-per-rank");
  refused("--gres=gpu:2", "give --gpus-per-node N");
  refused("--exclusive", "--exclusive is an option of sbatch: give it as --sbatch=--exclusive");
  for (const auto* flag : {"--exclusive", "--no-requeue"}) {  // a word after it is the program
    refused(std::string(flag) + " ./train", (std::string(flag) + " is an option of sbatch: give ").c_str());
  }
  refused("-a 0-2000", "the largest index is 2000, and those of this cluster are at most 1000 (MaxArraySize=1001)");
  const auto array = slurm(cluster, "array -t 1h --param a=1 -- echo {a}");
  EXPECT_EQ(array.exit_code, 64);
  EXPECT_THAT(array.err, HasSubstr("-t 1h is an option of sbatch: give it in --sbatch"));
  EXPECT_THAT(slurm(cluster, "array --sbatch '-t 2h' --param a=1 -- echo {a}").err, HasSubstr("write -t 2:00:00"));
  EXPECT_THAT(slurm(cluster, "array --folder 'a\\b' --param a=1 -- echo {a}").err, HasSubstr("choose another one"));
  // Nodes or their modules may have the program, so this is a warning, for programs too.
  const auto warned = slurm(cluster, "submit --json --dry-run -t 1m -- no-such-program {cpu}");
  EXPECT_EQ(warned.exit_code, 0) << warned.err;
  const auto json = nlohmann::json::parse(warned.out);
  EXPECT_THAT(json["warnings"].dump(),
              testing::AllOf(HasSubstr("no-such-program is not in PATH here"), HasSubstr("{cpu} stays as it is")));
  EXPECT_THAT(json["decisions"].dump(), HasSubstr("told to stop 15 s before the end"));
  // So are programs that the job would not find, and batch scripts, which each rank would run.
  folder_.write("r.py", "print(1)\n");
  folder_.write("plain", "x\n");
  folder_.write("job.sh", "#!/bin/bash\n#SBATCH --nodes=2\nsrun hostname\n", true);
  const auto refused_program = [&](const std::string& program, int status, const char* why) {
    const auto result = slurm(cluster, "submit -t 5m -- " + program);
    EXPECT_EQ(result.exit_code, status) << program << result.err;
    EXPECT_THAT(result.err, HasSubstr(why)) << program;
  };
  for (const auto* batch : {"./job.sh", "bash job.sh", "sh -e ./job.sh"}) {
    refused_program(batch, 64, "is a batch script, with options for sbatch from line 2 on");
  }
  EXPECT_EQ(slurm(cluster, "script -t 5m -- ./job.sh").exit_code, 64);
  refused_program("r.py", 64, "give python r.py");
  refused_program("plain", 64, "give ./plain");
  refused_program("./r.py", 64, "give python ./r.py, or make it executable");
  refused_program("./nothing", 66, "there is no ./nothing in this folder");
  refused_program("python3 -u nothing.py", 66, "there is no nothing.py in this folder");
  EXPECT_EQ(cluster.run({"squeue", "-h"}).out, "");
  // `yoke slurm check` finds the same in a script of the user. Oracle: sbatch takes it, and the job fails.
  folder_.write("lost.sh", "#!/bin/bash\n#SBATCH -t 5 --mem=1G\n#SBATCH -o nowhere/%j.out\nhostname\n");
  const auto checked = slurm(cluster, "check lost.sh");
  EXPECT_EQ(checked.exit_code, 1) << checked.err;
  EXPECT_THAT(checked.out, testing::AllOf(HasSubstr("log-folder-missing"), HasSubstr("mkdir -p nowhere")));
  const auto lost = cluster.shell("cd " + folder_.path() + " && sbatch --parsable --wait lost.sh");
  EXPECT_NE(lost.exit_code, 0);
  EXPECT_THAT(cluster.run({"scontrol", "show", "job", lost.out.substr(0, lost.out.find('\n'))}).out,
              testing::AllOf(HasSubstr("JobState=FAILED"), HasSubstr("ExitCode=0:53")));
  const auto full = slurm(cluster, "submit -t 5m -- sleep 30 >/dev/full");
  EXPECT_EQ(full.exit_code, 75);
  EXPECT_THAT(full.err, HasSubstr("is submitted all the same"));
  EXPECT_THAT(slurm(cluster, "submit --dry-run -t 5m -- /no/such.sh").err, HasSubstr("there is no /no/such.sh here"));
}

// --wait says what a job waits for, and does not wait for ever.
TEST_F(SlurmSubmit, WaitsForTheEndOfAJobThatCanStart) {
  SlurmCluster cluster({"--cpus", "4", "1"});
  const auto held = cluster.shell(
      "cd " + folder_.path() + "; export HOME=$PWD; " + YOKE_COMMAND +
      " slurm submit -t 5m --sbatch=--hold --wait -- true 2>said & cd " + folder_.path() +
      "; until grep -q 'scontrol release 1' said; do sleep 0.05; done; scontrol release 1; wait $!; echo status $?");
  EXPECT_THAT(held.out, HasSubstr("status 0\n"));
  EXPECT_THAT(slurp(folder_.path("said")), HasSubstr("job 1 is PENDING: its user holds it (JobHeldUser)"));
  submit(cluster, "-t 5m --sbatch=--hold -- true");
  cluster.run({"scancel", "2"});
  const auto never = slurm(cluster, "submit -t 5m --dependency afterok:2 --wait -- true");
  EXPECT_EQ(never.exit_code, 69);
  EXPECT_THAT(never.err,
              testing::AllOf(HasSubstr("so it never starts (DependencyNeverSatisfied); `scancel 3` removes it"),
                             HasSubstr("still in the queue")));
}

// Slurm forgets jobs soon here, and keeps no accounts.
TEST_F(SlurmSubmit, TheNoteOfAForgottenJobLeadsToItsOutputAndItsScript) {
  SlurmCluster cluster({"--cpus", "4", "--conf", "MinJobAge=2", "1"});
  folder_.write("out/file", "");
  const auto result = slurm(cluster, "submit -t 5m -o 'out/%x-%j.txt' -J tale --wait -- sh -c 'echo told $((1 + 1))'");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(wait_until(
      [&] {
        return cluster.run({"scontrol", "show", "job", "1"}).exit_code != 0;
      },
      milliseconds(60'000)));
  const auto elsewhere = [&](const std::string& words) {  // in another folder
    return cluster.shell("cd / && HOME=" + folder_.path() + " XDG_STATE_HOME=" + folder_.path("state") + " exec " +
                         YOKE_COMMAND + " slurm " + words);
  };
  const auto logs = elsewhere("logs 1");
  EXPECT_EQ(logs.exit_code, 0) << logs.err;
  EXPECT_THAT(logs.out, HasSubstr("told 2"));
  EXPECT_THAT(logs.err, HasSubstr("`yoke slurm submit` has noted"));
  const auto dry = elsewhere("resume --dry-run 1");
  EXPECT_THAT(dry.out, HasSubstr("slurm-1.sh would be submitted again in " + folder_.path()));
  const auto resumed = elsewhere("resume 1");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("the new job is 2\n"));
  EXPECT_THAT(resumed.out, HasSubstr("output  " + folder_.path("out/tale-2.txt")));
  EXPECT_TRUE(wait_until([&] { return slurp(folder_.path("out/tale-2.txt")).find("told 2") != std::string::npos; },
                         milliseconds(60'000)));
  EXPECT_EQ(slurp(folder_.path("slurm-2.sh")), slurp(folder_.path("slurm-1.sh")));
  EXPECT_EQ(elsewhere("resume 77").exit_code, 66);

  // Another cluster with this home has a job of the same number, and so has its script.
  const auto file = folder_.path("state/yoke/slurm/1/job.json");
  auto note = nlohmann::json::parse(slurp(file));
  EXPECT_EQ(note["cluster"], "yoke");
  note["cluster"] = "beta";
  folder_.write("state/yoke/slurm/1/job.json", note.dump());
  const auto foreign = elsewhere("resume 1");
  EXPECT_EQ(foreign.exit_code, 66);
  EXPECT_THAT(foreign.err, HasSubstr("is of cluster beta"));
  EXPECT_EQ(elsewhere("logs 1").exit_code, 66);
  folder_.write("state/yoke/slurm/3/job.json", note.dump());
  folder_.write("slurm-3.sh", "echo of beta\n");
  EXPECT_EQ(submit(cluster, "-t 5m -- true"), "3");
  EXPECT_EQ(nlohmann::json::parse(slurp(folder_.path("state/yoke/slurm/3/job.json"))), note);
  EXPECT_EQ(slurp(folder_.path("slurm-3.sh")), "echo of beta\n");
  const auto own = nlohmann::json::parse(slurp(folder_.path("state/yoke/slurm/3/job.yoke.json")));
  EXPECT_EQ(own["script"], folder_.path("slurm-3.yoke.sh"));
  // A file that was there before the job is the output of another one, and its own is not.
  folder_.write("late/sbatch",
                "#!/bin/sh\nid=$(/usr/bin/sbatch \"$@\") || exit\n"
                "until [ -e slurm-${id%%;*}.out ]; do sleep 0.05; done\necho $id\n",
                true);
  folder_.write("slurm-4.sh", "");
  folder_.write("slurm-5.sh", "");
  folder_.write("slurm-5.out", "of beta\n");
  const auto warning_of_next = [&] {
    const auto submitted = cluster.shell("cd " + folder_.path() + "; export HOME=$PWD PATH=$PWD/late:$PATH; exec " +
                                         YOKE_COMMAND + " slurm submit -t 5m -- true");
    EXPECT_EQ(submitted.exit_code, 0) << submitted.err;
    return submitted.err;
  };
  EXPECT_THAT(warning_of_next(), Not(HasSubstr("is also the output of another job")));
  EXPECT_THAT(warning_of_next(), HasSubstr("slurm-5.out is also the output of another job 5"));
}

TEST_F(SlurmSubmit, AForgottenArrayIsResumedByTasksAndAForeignScriptIsNotRun) {
  SlurmCluster cluster({"--cpus", "4", "--conf", "MinJobAge=2", "1"});
  const auto as_ada = [&](const std::string& words) {
    return cluster.shell("cd $SLURM_TEST_DIR/home/ada; exec " YOKE_COMMAND " slurm " + words, "ada");
  };
  const auto result = as_ada("submit -a 0-1 -t 5m -- sh -c 'echo task $SLURM_ARRAY_TASK_ID'");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  ASSERT_TRUE(wait_until(
      [&] {
        return cluster.run({"scontrol", "show", "job", "1"}).exit_code != 0;
      },
      milliseconds(60'000)));
  const auto all = as_ada("resume 1");
  EXPECT_EQ(all.exit_code, 64);
  EXPECT_THAT(all.err, HasSubstr("name the task to resume, as 1_0"));
  EXPECT_EQ(as_ada("resume 1_2").exit_code, 64);
  const auto one = as_ada("resume 1_1");
  EXPECT_EQ(one.exit_code, 0) << one.err;
  const auto begin = one.out.find("the new job is ") + 15;
  const auto job = one.out.substr(begin, one.out.find('\n') - begin);
  const auto out = cluster.folder() + "/home/ada/slurm-" + job + "_";
  EXPECT_TRUE(wait_until([&] { return cluster.shell("cat " + out + "1.out").out.find("task 1") != std::string::npos; },
                         milliseconds(60'000)));
  EXPECT_EQ(cluster.shell("ls " + out + "0.out").out, "");

  // No loop waits for a task of a sweep whose end Slurm has forgotten, or that was cancelled before it started.
  cluster.shell(
      "cd $SLURM_TEST_DIR/home/ada; mkdir -p lost/0 lost/1; touch lost/0/slurm.out; "
      "task='{\"parameters\": {}, \"argv\": [\"true\"]}'; "
      "echo '{\"format\": \"yoke sweep 1\", \"job\": \"999\", \"tasks\": ['$task, $task]} > lost/sweep.json",
      "ada");
  const auto lost = as_ada("array --collect lost --csv");
  EXPECT_EQ(lost.exit_code, 66) << lost.err;
  EXPECT_THAT(lost.out, testing::AllOf(HasSubstr("0,not known"), HasSubstr("1,never started")));

  cluster.shell("cd $SLURM_TEST_DIR/home/ada; chown bob slurm-1.sh");
  const auto foreign = as_ada("resume 1_1");
  EXPECT_EQ(foreign.exit_code, 77);
  EXPECT_THAT(foreign.err, testing::AllOf(HasSubstr("slurm-1.sh belongs to bob"), Not(HasSubstr("--parsable"))));
}

TEST_F(SlurmSubmit, GoesOnAfterPreemptionAndALostNode) {
  SlurmCluster cluster({"--network", "--cpus", "8", "--gpus", "4", "--conf", "PreemptType=preempt/partition_prio",
                        "--conf", "PreemptMode=REQUEUE", "--conf", "SlurmctldDebug=debug2", "2"});
  ASSERT_EQ(cluster.run({"scontrol", "create", "PartitionName=urgent", "Nodes=ALL", "PriorityTier=9", "MaxTime=60"})
                .exit_code,
            0);
  ASSERT_EQ(cluster.run({"scontrol", "update", "PartitionName=main", "GraceTime=60"}).exit_code, 0);
  const auto job = submit(cluster, "-N 2 --gpus-per-node 4 -t 5m -- ./counter $PWD 200");
  for (int rank = 0; rank < 8; ++rank) ASSERT_TRUE(wait_for(job, std::to_string(rank) + ": begins after 0"));
  // Slurm sends SIGTERM to the ranks alone. They save and end, and the script asks for another turn.
  ASSERT_EQ(cluster.run({"srun", "-p", "urgent", "-N2", "--exclusive", "true"}).exit_code, 0);
  EXPECT_THAT(output(job), HasSubstr("stopped in time; the job goes back"));
  start_now(cluster, job);
  ASSERT_TRUE(wait_until([&] { return std::regex_search(output(job), std::regex("7: begins after [1-9]")); },
                         milliseconds(90'000)))
      << output(job);
  // A node is lost without a signal: Slurm requeues the job by itself, and it goes on from the newest checkpoint.
  const auto num_ends_on_n2 = [&] {
    const auto lines = lines_of(slurp(cluster.folder() + "/log/slurmctld.log"));
    return std::ranges::count_if(lines, [&](const auto& line) {
      return line.find("epilog_complete: JobId=" + job + " Node=n2") != line.npos ||
             line.find("job_epilog_complete: JobId=" + job) != line.npos;  // when the job is pending already
    });
  };
  const auto before = num_ends_on_n2();
  ASSERT_EQ(cluster.run({"scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test"}).exit_code, 0);
  ASSERT_TRUE(cluster.wait_for_state(job, "PENDING"));
  // Slurm does not wait until a lost node has ended its part of the job. If the node says so after the next start,
  // Slurm takes the node from that start, whose srun then waits forever.
  ASSERT_TRUE(wait_until([&] { return num_ends_on_n2() > before; }, milliseconds(90'000))) << cluster.story_of(job);
  cluster.run({"scontrol", "update", "NodeName=n2", "State=RESUME"});  // it may have come back by itself
  start_now(cluster, job);
  ASSERT_TRUE(cluster.wait_for_state(job, "COMPLETED")) << output(job) << cluster.story_of(job);
  EXPECT_EQ(slurp(folder_.path("checkpoint.0")), "200\n");
  EXPECT_EQ(slurp(folder_.path("checkpoint.7")), "200\n");
}

}  // namespace
}  // namespace yoke::test
