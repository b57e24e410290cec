// Tests `yoke run` and `yoke slurm verify` inside jobs of a real Slurm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <nlohmann/json.hpp>

#include "tests/support/kept_state.h"
#include "tests/support/slurm.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kRun = std::string(YOKE_COMMAND) + " run";
const std::string kVerify = std::string(YOKE_COMMAND) + " slurm verify";
constexpr const char* kPlace = " -- sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK $(hostname) $MASTER_ADDR'";

class SlurmInside : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = SlurmCluster::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  }

  /// Runs a script in a job and returns what it printed, both streams together.
  std::string batch(const std::string& options, const std::string& script) {
    cluster_->shell("cat > $SLURM_TEST_DIR/script <<'END'\n#!/bin/sh\n" + script +
                    "\nEND\nrm -f $SLURM_TEST_DIR/out; " + "timeout 60 sbatch -W -o $SLURM_TEST_DIR/out " + options +
                    " $SLURM_TEST_DIR/script");
    return slurp(cluster_->folder() + "/out");
  }

  void start(const std::vector<std::string>& words) { cluster_ = std::make_unique<SlurmCluster>(words); }

  std::unique_ptr<SlurmCluster> cluster_;
};

TEST_F(SlurmInside, ABatchScriptNeedsNoOptions) {
  start({"--network", "--cpus", "8", "--gpus", "4", "2"});
  const auto gpus = batch("-N2 --gpus-per-node=2", kRun + kPlace);
  EXPECT_THAT(gpus, AllOf(HasSubstr("yoke run: job 1.0 of Slurm: 2 nodes, n[1-2]; 2 ranks here, one for each GPU"),
                          HasSubstr("[0] 0/4 0 n1 n1\n"), HasSubstr("[1] 1/4 1 n1 n1\n"),
                          HasSubstr("[2] 2/4 0 n2 n1\n"), HasSubstr("[3] 3/4 1 n2 n1\n")));
  // srun alone would give each launcher the GPU of one task.
  const auto of_tasks = batch("-N2 --ntasks-per-node=2 --gpus-per-task=1 -c2",
                              kRun + " -- sh -c 'echo $RANK $CUDA_VISIBLE_DEVICES $SLURM_CPUS_PER_TASK'");
  EXPECT_THAT(of_tasks, AllOf(HasSubstr("[0] 0 0,1 2\n"), HasSubstr("[3] 3 0,1 2\n")));
  const auto tasks = batch("-N2 -n3", kRun + kPlace);
  EXPECT_THAT(tasks, AllOf(HasSubstr("0/3 0 n1"), HasSubstr("1/3 1 n1"), HasSubstr("2/3 0 n2")));
  const auto workstation = batch("-N1 --gpus=3", kRun + kPlace);
  EXPECT_THAT(workstation, AllOf(HasSubstr("2/3 2 n1 127.0.0.1"), HasSubstr("job 4.0 of Slurm: 1 node, n1; 3 ranks")));
  // Programs of one script share the node, and without srun (in a container) the ranks start without a step.
  const auto shared = batch("-N1 -n2", "rm -f $SLURM_TEST_DIR/here; " + kRun +
                                           " -n1 -- sh -c 'until [ -e $SLURM_TEST_DIR/here ]; do sleep 0.1; done; echo "
                                           "overlap ${SLURM_OVERLAP-none}' & " +
                                           kRun + " -n1 -- touch $SLURM_TEST_DIR/here; wait");
  EXPECT_THAT(shared, HasSubstr("overlap none\n"));
  const auto no_srun = batch("-N1 -n2",
                             "mkdir $SLURM_TEST_DIR/bin; for p in sh hostname; do ln -s $(command -v $p) "
                             "$SLURM_TEST_DIR/bin; done; PATH=$SLURM_TEST_DIR/bin; " +
                                 kRun + kPlace);
  EXPECT_THAT(no_srun, AllOf(HasSubstr("1/2 1 n1"), HasSubstr("job 6 of Slurm")));
  const auto alone = batch("-N2", kRun + " --standalone" + kPlace);
  EXPECT_THAT(alone, AllOf(HasSubstr("0/1 0 n1 127.0.0.1"), Not(HasSubstr("of Slurm"))));
}

TEST_F(SlurmInside, FailuresSignalsAndRestartsReachAllNodes) {
  start({"--network", "2"});
  const auto failed =
      batch("-N2 --ntasks-per-node=1", kRun + " -- sh -c '[ $RANK = 0 ] || exit 5; sleep 100'; echo status $?");
  EXPECT_THAT(failed, AllOf(HasSubstr("rank 1 "), HasSubstr("status 5\n")));
  const auto restarted = batch("-N2", kRun +
                                          " --max-restarts 1 -- sh -c '[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && "
                                          "exit 3; echo attempt $TORCHELASTIC_RESTART_COUNT $RANK'; echo status $?");
  EXPECT_THAT(restarted, AllOf(HasSubstr("attempt 1 0\n"), HasSubstr("attempt 1 1\n"), HasSubstr("status 0\n")));
  // The last launcher cannot say why it ended, so srun ends the others.
  const auto killed = batch("-N2", kRun +
                                       " --grace 1 -- sh -c '[ $RANK = 0 ] || kill -9 $(ps -o ppid= -p $PPID); "
                                       "sleep 100'; echo status $?");
  EXPECT_THAT(killed, AllOf(HasSubstr("status "), Not(HasSubstr("status 0"))));
  const auto script = cluster_->folder() + "/loop";
  cluster_->shell("cat > " + script + " <<'END'\n#!/bin/sh\n" + kRun +
                  " -- sh -c 'trap \"echo got USR1 on rank $RANK\" USR1; trap \"echo got TERM on rank $RANK; exit 0\" "
                  "TERM; echo up $RANK; while :; do sleep 0.1; done'\nEND");
  const auto out = cluster_->folder() + "/loop.out";
  auto job = cluster_->run({"sbatch", "--parsable", "-N2", "-o", out, script}).out;
  job = job.substr(0, job.find('\n'));
  const auto has = [&](const char* text) { return slurp(out).find(text) != std::string::npos; };
  ASSERT_TRUE(wait_until([&] { return has("up 0") && has("up 1"); }, milliseconds(90'000))) << slurp(out);
  cluster_->run({"scancel", "--signal=USR1", job});
  EXPECT_TRUE(wait_until([&] { return has("USR1 on rank 0") && has("USR1 on rank 1"); }, milliseconds(90'000)))
      << slurp(out);
  cluster_->run({"scancel", "--signal=TERM", job});
  EXPECT_TRUE(wait_until([&] { return has("TERM on rank 0") && has("TERM on rank 1"); }, milliseconds(90'000)))
      << slurp(out);
}

// With linuxproc slurmstepd signals every process of a step, with pgid only the launchers.
TEST_F(SlurmInside, EachSignalReachesTheRanksOfOneNodeOnce) {
  for (const std::string tracker : {"linuxproc", "pgid"}) {
    start({"--network", "--cpus", "4", "--conf", "ProctrackType=proctrack/" + tracker, "1"});
    const auto script = cluster_->folder() + "/loop";
    cluster_->shell("cat > " + script + " <<'END'\n#!/bin/sh\n" + kRun +
                    " -- sh -c 'trap \"echo got USR1 on $RANK\" USR1; trap \"echo got TERM on $RANK; exit 0\" TERM; "
                    "sleep 1.5; echo up $RANK of $(ps -o ppid= -p $PPID).; while :; do sleep 0.1; done'\nEND");
    const auto out = cluster_->folder() + "/loop.out";
    auto job = cluster_->run({"sbatch", "--parsable", "-N1", "-n2", "-o", out, script}).out;
    job = job.substr(0, job.find('\n'));
    const auto count = [&](const std::string& text) {
      int result = 0;
      const auto said = slurp(out);
      for (auto at = said.find(text); at != said.npos; at = said.find(text, at + 1)) ++result;
      return result;
    };
    const auto comes = [&](const std::string& text, int times) {
      return wait_until([&] { return count(text + "0") >= times && count(text + "1") >= times; }, milliseconds(30'000));
    };
    ASSERT_TRUE(comes("up ", 1)) << tracker << slurp(out);
    cluster_->run({"scancel", "--signal=USR1", job});
    EXPECT_TRUE(comes("got USR1 on ", 1)) << tracker << slurp(out);
    cluster_->shell("sleep 0.5");  // clock: a second one may come; a wait that is too short finds less
    EXPECT_EQ(count("got USR1"), 2) << tracker << slurp(out);
    const auto said = slurp(out);
    const auto pid = said.find(" of ", said.find("up 0")) + 4;
    cluster_->shell("kill -USR1 " + said.substr(pid, said.find('.', pid) - pid));
    EXPECT_TRUE(comes("got USR1 on ", 2)) << tracker << ": a signal by kill is forwarded; " << slurp(out);
    // Without --signal, Slurm ends the srun of the script too, which then may not print what the ranks say.
    cluster_->run({"scancel", "--signal=TERM", job});
    EXPECT_TRUE(comes("got TERM on ", 1)) << tracker << slurp(out);
    EXPECT_EQ(count("got TERM"), 2) << tracker << slurp(out);
    cluster_.reset();
  }
}

TEST_F(SlurmInside, AHeterogeneousJobIsNotReducedToItsFirstComponent) {
  start({"--network", "--cpus", "4", "2"});
  const auto job = [&](const std::string& command) { return batch("-N1 -n1 : -N1 -n1", command + "; echo status $?"); };
  EXPECT_THAT(job(kRun + kPlace), AllOf(HasSubstr("srun --het-group=0-1"), Not(HasSubstr("0/1"))));
  EXPECT_THAT(job("srun --het-group=0-1 --ntasks-per-node=1 " + kRun + kPlace),
              AllOf(HasSubstr("0/2 0"), HasSubstr("1/2 0"), HasSubstr("status 0\n")));
}

TEST_F(SlurmInside, SeveralLaunchersOnANodeAndABrokenSlurmAreErrors) {
  start({"--network", "--cpus", "4", "2"});
  const auto several = batch("-N2 -n4", "srun " + kRun + " -- true; echo status $?");
  EXPECT_THAT(several, AllOf(HasSubstr("one launcher cannot give the CPUs"), HasSubstr("status 64")));
  EXPECT_THAT(batch("-N2", "unset SLURM_JOB_NODELIST; " + kRun + " -- true"),
              HasSubstr("SLURM_JOB_NODELIST is not set"));
  // sbatch cannot wait for a job whose slurmctld is down, so the script says when it is done.
  cluster_->shell(
      "cat > $SLURM_TEST_DIR/broken <<'END'\n#!/bin/sh\nexec >$SLURM_TEST_DIR/said 2>&1\n"
      "kill -9 $(cat $SLURM_TEST_DIR/run/slurmctld.pid)\n" +
      kRun + " -- true; echo status $?; " + kVerify + "; echo done\nEND\nsbatch -N2 -o /dev/null " +
      "$SLURM_TEST_DIR/broken");
  const auto said = cluster_->folder() + "/said";
  ASSERT_TRUE(wait_until([&] { return slurp(said).ends_with("done\n"); }, milliseconds(60'000))) << slurp(said);
  EXPECT_THAT(slurp(said), AllOf(HasSubstr("yoke run: slurmctld is down, so no step can start"), HasSubstr("status 75"),
                                 HasSubstr("yoke slurm verify: slurmctld is down")));
}

TEST_F(SlurmInside, WhatTasksReallyHaveIsReadBack) {
  start({"--network", "--bind", "--gpus", "2", "1"});
  // A step that measures may fail, for example for its memory: the findings stay.
  cluster_->shell(
      "cat > $SLURM_TEST_DIR/srun <<'END'\n#!/bin/sh\ncase \"$*\" in *--measure*) echo oom-kill >&2; exit 1;; "
      "esac\nexec /usr/bin/srun --label \"$@\"\nEND\nchmod +x $SLURM_TEST_DIR/srun");
  const auto text = batch("-n1 -c2", kVerify + " -- --exact; echo status $?; srun -n1 -c2 " + kVerify +
                                         "; PATH=$SLURM_TEST_DIR:$PATH " + kVerify +
                                         " --json -- -n2 -c2 --overcommit --cpu-bind=none > $SLURM_TEST_DIR/json; "
                                         "echo status $?");
  EXPECT_THAT(text, HasSubstr("verdict: wrong, for 1 reason\nstatus 1"))
      << "srun does not take -c from the job, so with --exact the task has one CPU";
  EXPECT_THAT(text, HasSubstr("fewer CPUs than the 2 that were asked for"));
  EXPECT_THAT(text, HasSubstr("measured: rank 0 copies memory at"));
  EXPECT_THAT(text, HasSubstr("rank 0 on n1: device none, CPUs 0-1 (2)"));
  const auto json = nlohmann::json::parse(slurp(cluster_->folder() + "/json"));
  EXPECT_EQ(json["tasks"].size(), 2U);
  EXPECT_THAT(json["not_measured"].get<std::string>(), HasSubstr("oom-kill"));
  EXPECT_EQ(json["tasks"][1]["cpus"], "0-1");
  EXPECT_THAT(json["findings"][0]["text"], HasSubstr("ranks 0-1 on n1 share the CPUs"));
  // The driver is a fake with eight GPUs, of which Slurm's variables name two.
  const auto gpus = batch("-n2 --gpus=2 --overcommit", "export LD_LIBRARY_PATH=" YOKE_FAKES_FOLDER
                                                       " YOKE_FAKE_NVML=" YOKE_STATES_FOLDER "/eight_a100.json\n" +
                                                           kVerify + " --json -- --cpu-bind=none");
  const auto with_gpus = nlohmann::json::parse(gpus);
  EXPECT_EQ(with_gpus["tasks"][1]["openable"].size(), 8U);
  EXPECT_EQ(with_gpus["tasks"][1]["visible"], nlohmann::json({0, 1}));
  EXPECT_EQ(with_gpus["findings"].size(), 1U) << gpus;  // the CPUs; each rank takes a device of its own
}

TEST_F(SlurmInside, AStepWithoutItsDevicesIsNotRight) {
  start({"--bind", "--gpus", "2", "1"});
  const std::string driver =
      "export LD_LIBRARY_PATH=" YOKE_FAKES_FOLDER " YOKE_FAKE_NVML=" YOKE_STATES_FOLDER "/eight_a100.json\n";
  const auto text = batch(
      "-n2 --gpus=2", driver + "say() { echo \"== $1\"; shift; \"$@\" 2>&1; echo \"status $?\"; }\n" +
                          "say none env LD_LIBRARY_PATH= " + kVerify + "\n" +  //
                          "say variable srun -n1 env CUDA_VISIBLE_DEVICES=99 " + kVerify + "\n" + "say zero " +
                          kVerify + " -- --gpus=0\n" +                //
                          "say cpu " + kVerify + " --vendor cpu\n" +  //
                          "say bind " + kVerify + " -- --cpu-bind=map_cpu:777,778\n" + "say map " + kVerify +
                          " -- --overcommit --cpu-bind=map_cpu:0,0\n" + "say program " + kVerify + " -- ./train.py\n");
  const auto part = [&](const std::string& name) {
    const auto begin = text.find("== " + name + "\n");
    return begin == text.npos ? "" : text.substr(begin, text.find("== ", begin + 3) - begin);
  };
  EXPECT_THAT(part("none"), AllOf(HasSubstr("have no device: no driver shows one: nvml"), HasSubstr("status 1\n")));
  EXPECT_THAT(part("variable"),
              AllOf(HasSubstr("CUDA_VISIBLE_DEVICES=99: '99' is out of range"), HasSubstr("status 1")));
  EXPECT_THAT(part("zero"), AllOf(HasSubstr("note: Slurm gave the step no GPU"), Not(HasSubstr("and a device")),
                                  HasSubstr("status 0\n")));
  EXPECT_THAT(part("cpu"), AllOf(Not(HasSubstr("0000:")), HasSubstr("status 0\n")));
  EXPECT_THAT(part("bind"), AllOf(HasSubstr("CPU binding outside of job step allocation"), HasSubstr("status 69\n")));
  EXPECT_THAT(part("map"), HasSubstr("--cpu-bind=map_cpu:0,0 chooses these CPUs"));
  EXPECT_THAT(part("program"), AllOf(HasSubstr("./train.py is not an option of srun"), HasSubstr("status 64\n")));
}

// torchrun waits for TERM, which srun would not pass on. Its ranks save, and it fails; the job then goes on.
TEST_F(SlurmInside, TorchrunIsToldToStopBeforeTheEnd) {
  start({"--network", "2"});
  const auto& folder = cluster_->folder();
  cluster_->shell(
      "cat > $SLURM_TEST_DIR/torchrun <<'END'\n#!/bin/bash\n"
      "trap 'echo $SLURM_NODEID >>$0.told; exit 1' TERM\necho up\nwhile :; do sleep 0.1; done\nEND\n"
      "chmod +x $SLURM_TEST_DIR/torchrun");
  const auto job = cluster_->shell("cd $SLURM_TEST_DIR && " + std::string(YOKE_COMMAND) +
                                   " slurm script -N 2 -t 5m -- $SLURM_TEST_DIR/torchrun train.py | sbatch --parsable");
  const auto out = folder + "/slurm-1.out";
  ASSERT_TRUE(wait_until([&] { return slurp(out).find("up\nup\n") != std::string::npos; }, milliseconds(60'000)))
      << job.err << slurp(out);
  // What Slurm does by --signal=B:USR1@120 when the end comes near.
  ASSERT_EQ(cluster_->run({"scancel", "--batch", "--signal=USR1", "1"}).exit_code, 0);
  ASSERT_TRUE(wait_until([&] { return slurp(out).find("goes back into the queue (restart 1") != std::string::npos; },
                         milliseconds(60'000)))
      << slurp(out);
  EXPECT_THAT(slurp(folder + "/torchrun.told"), AllOf(HasSubstr("0\n"), HasSubstr("1\n")));
  cluster_->run({"scancel", "1"});
}

TEST_F(SlurmInside, AVerificationThatIsInterruptedLeavesNoStep) {
  start({"--network", "--bind", "1"});
  const auto text =
      batch("-n1 --exclusive",
            "srun sleep 100 & step=$!; until squeue -s -h | grep -q '\\.0 '; do sleep 0.1; "
            "done; " +
                kVerify +
                " & pid=$!; until pgrep -f '[s]lurm verify --read' >/dev/null; do sleep 0.05; "
                "done; kill $pid; wait $pid; echo status $?; "
                "for i in $(seq 200); do pgrep -f '[s]lurm verify --read' >/dev/null || break; sleep 0.3; "
                "done; pgrep -cf '[s]lurm verify --read'; kill $step");
  EXPECT_THAT(text, HasSubstr("status 143\n0\n"));
}

TEST(SlurmVerifyOutside, OptionsAreJudgedAlone) {
  const auto result =
      run({.argv = {YOKE_COMMAND, "slurm", "verify", "--dry", "--", "-N2", "--ntasks-per-node=4", "--gpus-per-task=1"},
           .without = {"SLURM_JOB_ID"}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("8 tasks on 2 nodes, 4 on each"), HasSubstr("--gpu-bind=none")));
  TemporaryFolder config;
  config.write("yoke/sites/here.toml", "name = \"here\"\n[detect]\nhosts = [\"*\"]\n[node]\ngpus = 2\n");
  const auto at_site = run({.argv = {YOKE_COMMAND, "slurm", "verify", "--dry", "--", "-n3", "--gpus-per-node=3", "-c1"},
                            .environment = {{"XDG_CONFIG_HOME", config.path()}},
                            .without = {"SLURM_JOB_ID"}});
  EXPECT_EQ(at_site.exit_code, 1);
  EXPECT_THAT(at_site.out, AllOf(HasSubstr("site here (host "), HasSubstr("but a node of here has 2")));
  const auto none = run({.argv = {YOKE_COMMAND, "slurm", "verify"}, .without = {"SLURM_JOB_ID", "SLURM_STEP_ID"}});
  EXPECT_EQ(none.exit_code, 69);
  EXPECT_THAT(none.err, HasSubstr("there is no job here"));
}

/// `sbatch --no-kill` has the job go on, and so the step that `yoke run --spares` becomes.
TEST_F(SlurmInside, ASpareStartsTheRanksOfANodeThatFails) {
  start({"--network", "3"});
  const auto out = [&] { return slurp(cluster_->folder() + "/out"); };
  const auto says = [&](const std::string& text) {
    return wait_until([&] { return out().find(text) != std::string::npos; }, milliseconds(60'000));
  };
  cluster_->shell(
      "cat > $SLURM_TEST_DIR/script <<'END'\n#!/bin/sh\n" + kRun + " --spares 1 --replace 9 -- sh -c '" + kKeepsState +
      "made 4; echo $RANK.$YOKE_REPLACEMENT on $(hostname); until [ -e $SLURM_TEST_DIR/done ]; do sleep 0.1; "
      "done'; echo status $?\nEND\nsbatch --no-kill -N3 -o $SLURM_TEST_DIR/out $SLURM_TEST_DIR/script");
  ASSERT_TRUE(says("0.0 on n1") && says("1.0 on n2")) << out();
  poll(nullptr, 0, 3000);  // clock: a node tells once a second which ranks keep a state
  cluster_->run({"scontrol", "update", "nodename=n2", "state=down", "reason=test"});
  EXPECT_TRUE(says(" on n3")) << out();
  cluster_->shell("touch $SLURM_TEST_DIR/done");
  EXPECT_TRUE(says("status 137\n")) << "that of the launcher that Slurm has killed" << out();
  // Slurm may have killed the rank before its launcher, which then had begun to start it again.
  EXPECT_THAT(out(), AllOf(testing::ContainsRegex("the spare host n3 takes its place, and starts rank 1 again, "
                                                  "replacement [12] of 9\n"),
                           testing::ContainsRegex("1\\.[12] on n3"), Not(HasSubstr("] 0.1 on"))));
}

}  // namespace
}  // namespace yoke::test
