// Tests the commands that watch jobs of a real Slurm: ps, logs, report, top, array and resume of `yoke slurm`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/slurm.h"

namespace yoke::test {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kFolder = "cd $SLURM_TEST_DIR/home/ada; ";

Result slurm(const SlurmCluster& cluster, const std::string& words) {
  return cluster.shell(kFolder + YOKE_COMMAND " slurm " + words, "ada");
}

/// Submits a job as ada and returns its number.
std::string submit(const SlurmCluster& cluster, const std::string& words) {
  const auto result = cluster.shell(kFolder + "sbatch --parsable " + words, "ada");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.out.substr(0, result.out.find('\n'));
}

/// "5-7" for the job 5 and 3 numbers.
std::string numbers_from(const std::string& job, int count) {
  return job + "-" + std::to_string(std::stoi(job) + count - 1);
}

TEST(SlurmWatching, ListsJobsAndShowsWhatTheyPrint) {
  if (const auto reason = SlurmCluster::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  SlurmCluster cluster({"--network", "--cpus", "8", "--gpus", "4", "2"});
  const auto job = submit(cluster,
                          "-N2 -J 'a b|c=d' --gpus-per-node=2 -o 'my %j-%N.out' -e '%x.err' --wrap 'echo out; "
                          "echo err >&2; until [ -e go ]; do sleep 0.05; done; echo end'");
  const auto held = submit(cluster, "--hold --wrap true");
  ASSERT_TRUE(cluster.wait_for_state(job, "RUNNING"));

  const auto table = slurm(cluster, "ps").out;
  EXPECT_THAT(table, AllOf(HasSubstr("a b|c=d"), HasSubstr("n[1-2]"), HasSubstr("(JobHeldUser)")));
  EXPECT_THAT(table, HasSubstr("JobHeldUser: its user holds it; `scontrol release JOB` lets it start"));
  const auto json = Json::parse(slurm(cluster, "ps --json " + job).out).at("jobs");
  ASSERT_EQ(json.size(), 1U);
  EXPECT_EQ(json[0].at("num_gpus"), 4);
  EXPECT_EQ(json[0].at("name"), "a b|c=d");
  EXPECT_THAT(cluster.shell("SQUEUE_STATES=COMPLETED SQUEUE_USERS=bob " YOKE_COMMAND " slurm ps", "ada").out,
              AllOf(HasSubstr("a b|c=d"), HasSubstr("(JobHeldUser)")));
  EXPECT_THAT(cluster.run({YOKE_COMMAND, "slurm", "ps"}, "bob").out, HasSubstr("no job of bob"));
  EXPECT_THAT(cluster.run({YOKE_COMMAND, "slurm", "ps", "--all"}, "bob").out, HasSubstr("ada"));

  const auto waiting = slurm(cluster, "logs " + held);
  EXPECT_EQ(waiting.exit_code, 66);
  EXPECT_THAT(waiting.err, HasSubstr("waits in the queue (JobHeldUser)"));
  // With -f it ends with the job, and has what came meanwhile.
  // clock: the output is the same at any moment
  const auto followed = slurm(cluster, "logs -f " + job + " & sleep 0.3; touch go; wait $!");
  EXPECT_EQ(followed.exit_code, 0) << followed.err;
  EXPECT_EQ(followed.out, "out\nend\n");
  EXPECT_EQ(followed.err, "err\n");
  EXPECT_EQ(slurm(cluster, "logs -n 1 " + job).out, "end\n");

  // What a job prints that starts later is new as a whole.
  const auto late = submit(cluster, "--hold -J 'a name of more than twenty letters' --wrap 'echo 1; echo 2'");
  EXPECT_THAT(slurm(cluster, "ps --json " + late).out, HasSubstr("a name of more than twenty letters"));
  EXPECT_EQ(slurm(cluster, "logs -f -n 1 " + late + " 2>said & until grep -q waits said; do sleep 0.05; done; " +
                               "scontrol release " + late + "; wait $!")
                .out,
            "1\n2\n");
  // Slurm cuts lists of tasks after 64 characters unless it is told otherwise.
  const auto pending = submit(cluster, "--hold --array=0-40:2,41-99:3,900 --wrap true");
  const auto list = Json::parse(slurm(cluster, "ps --json " + pending).out).at("jobs").at(0).at("id").dump();
  EXPECT_THAT(list, AllOf(HasSubstr("_[0,2,4,"), HasSubstr(",98,900]")));
  EXPECT_THAT(slurm(cluster, "ps " + pending).out, AllOf(HasSubstr("_[0,2,4,"), HasSubstr(",...]")));
  EXPECT_THAT(slurm(cluster, "report '" + pending + "_[900]'").out, HasSubstr("PENDING"));
  EXPECT_EQ(slurm(cluster, "report '" + pending + "_[1,3]'").exit_code, 66);
  EXPECT_THAT(slurm(cluster, "ps '" + pending + "_[98,900]' '" + pending + "_[1,3]'").out,
              AllOf(HasSubstr("PENDING"), HasSubstr("job " + pending + "_[1,3] neither waits nor runs")));
  // Each line names its task, also while the other one waits.
  const auto array = submit(cluster, "--array=0-1%1 --wrap 'echo task $SLURM_ARRAY_TASK_ID'");
  EXPECT_EQ(slurm(cluster, "logs -f " + array).out, array + "_0: task 0\n" + array + "_1: task 1\n");
  EXPECT_EQ(slurm(cluster, "logs " + array + "_1").out, "task 1\n");
  EXPECT_EQ(slurm(cluster, "logs '" + array + "_[1-7]'").out, "task 1\n");
  EXPECT_EQ(slurm(cluster, "logs " + array + ",1").exit_code, 64);
  // A terminal of 40 columns keeps what matters, and a pipe has all.
  const auto narrow = cluster.shell(kFolder + "COLUMNS=40 " YOKE_COMMAND " slurm ps " + job + " " + held, "ada").out;
  EXPECT_THAT(narrow, AllOf(HasSubstr("  state    where\n"), HasSubstr("PENDING  (JobHeldUser)")));
  EXPECT_THAT(slurm(cluster, "ps " + late + "," + pending).out, Not(HasSubstr("…")));
  EXPECT_EQ(slurm(cluster, "logs 9999").exit_code, 66);
  EXPECT_EQ(slurm(cluster, "report " + array + "_9").exit_code, 66);  // a task that the array lacks

  // More files than this user may open at once.
  const auto many = submit(cluster, "--array=0-23 -o m%a.out -e m%a.err --wrap 'echo out; echo err >&2'");
  const auto few = [&](const std::string& words) {
    return cluster.shell(kFolder + "ulimit -Sn 40; " YOKE_COMMAND " slurm logs " + words, "ada");
  };
  const auto watched = few("-f " + many), whole = few(many);
  EXPECT_EQ(watched.exit_code, 0) << watched.err;
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_EQ(std::ranges::count(watched.out, '\n'), 24);
  EXPECT_EQ(std::ranges::count(whole.err, '\n'), 24);

  // Components of a heterogeneous job have names of their own, and one batch script.
  cluster.shell(kFolder + "printf '#!/bin/sh\necho het; until [ -e het ]; do sleep 0.05; done\n' > het.sh", "ada");
  const auto het = submit(cluster, "-J \"$(printf 'two\\nlines')\" -n1 : -J b -n1 het.sh");
  ASSERT_TRUE(cluster.wait_for_state(het, "RUNNING"));
  const auto component = Json::parse(slurm(cluster, "ps --json " + het + "+1 9999").out);
  ASSERT_EQ(component.at("jobs").size(), 1U) << component;
  EXPECT_EQ(component.at("jobs")[0].at("id"), het + "+1");
  EXPECT_EQ(component.at("missing"), Json({"9999"}));
  EXPECT_THAT(slurm(cluster, "ps " + het + " 9999").out,
              AllOf(HasSubstr(het + "+0"), HasSubstr(het + "+1"), HasSubstr("job 9999 neither waits nor runs")));
  cluster.shell(kFolder + "touch het", "ada");
  EXPECT_EQ(slurm(cluster, "logs -f " + het + "+1").out, "het\n");
  ASSERT_TRUE(cluster.wait_for_state(het, "COMPLETED"));
  EXPECT_THAT(slurm(cluster, "report " + het).out,
              AllOf(HasSubstr("job " + het + "+0 (two"), HasSubstr("job " + het + "+1 (b)")));
  // The second component has the next number.
  const auto components = Json::parse(slurm(cluster, "report --json " + numbers_from(het, 2)).out).at("reports");
  ASSERT_EQ(components.size(), 2U) << components;
  EXPECT_EQ(components[1].at("job").at("id"), het + "+1");

  // Slurm has forgotten this job, and keeps no accounts here.
  cluster.shell(kFolder + "echo old > slurm-777.out; echo other > slurm-77.out", "ada");
  const auto found = slurm(cluster, "logs 777");
  EXPECT_EQ(found.out, "old\n");
  EXPECT_THAT(found.err, HasSubstr("this is what the files in this folder say"));

  Command watching({.argv = cluster.in({YOKE_COMMAND, "slurm", "ps", "--watch", "0.2"}, "ada")});
  ASSERT_TRUE(watching.wait_for_output("JobHeldUser")) << watching.err();
  cluster.kill_daemon("slurmctld");
  const auto broken = slurm(cluster, "ps");
  EXPECT_EQ(broken.exit_code, 75);
  EXPECT_THAT(broken.err, HasSubstr("squeue cannot reach slurmctld"));
  // --watch outlives a restart.
  ASSERT_TRUE(watching.wait_for_output("trying again for 10 min")) << watching.err();
  ASSERT_EQ(cluster.shell("slurmctld").exit_code, 0);
  const auto is_back = [&] {
    const auto& text = watching.out();
    return text.find("JobHeldUser", text.rfind("trying again for")) != text.npos;
  };
  EXPECT_TRUE(watching.wait_until(is_back, milliseconds(60'000))) << watching.out() << watching.err();
}

/// Variables that give each process eight simulated GPUs.
const std::string kGpus =
    "YOKE_FAKE_NVML=" YOKE_STATES_FOLDER "/eight_a100.json LD_LIBRARY_PATH=" YOKE_FAKES_FOLDER " ";

TEST(SlurmWatching, ReportsWhatAJobUsedAndShowsItsDevices) {
  if (const auto reason = SlurmCluster::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  SlurmCluster cluster({"--network", "--cpus", "8", "--gpus", "4", "2"});
  // The processes of both nodes are seen in the one /proc of this machine; each node counts its own task's use twice.
  const auto job = submit(cluster, "-N2 -J train --wrap 'srun --ntasks-per-node=1 env " + kGpus + YOKE_COMMAND +
                                       " slurm sample -- sh -c \"until [ -e go ]; do :; done\"'");
  ASSERT_TRUE(cluster.wait_for_state(job, "RUNNING"));
  const auto top = cluster.shell(kFolder + kGpus + YOKE_COMMAND " slurm top --once " + job, "ada");
  EXPECT_EQ(top.exit_code, 0) << top.err;
  EXPECT_THAT(top.out, AllOf(HasSubstr("job " + job + " (train) of ada: 2 nodes"), HasSubstr("n1 "), HasSubstr("n2 ")));
  EXPECT_THAT(top.out, Not(HasSubstr("no answer")));
  EXPECT_THAT(top.out, HasSubstr("Slurm knows no GPU of this job; the 16 shown are all that its nodes let it open"));
  const auto samples = "ls .local/state/yoke/slurm/" + job + "/*.json | wc -l";
  EXPECT_TRUE(wait_until([&] { return cluster.shell(kFolder + samples, "ada").out == "2\n"; }, milliseconds(90'000)));
  cluster.shell(kFolder + "touch go", "ada");
  ASSERT_TRUE(cluster.wait_for_state(job, "COMPLETED"));
  EXPECT_EQ(cluster.shell("find $SLURM_TEST_DIR/home/ada/.local -name '*.json' -not -perm 600").out, "");

  const auto report = slurm(cluster, "report slurm-" + job + ".out").out;
  EXPECT_THAT(report, AllOf(HasSubstr("job " + job + " (train) of ada: COMPLETED"), HasSubstr("busy (sampled by yoke)"),
                            HasSubstr("\nnot known\n"), HasSubstr("keeps no accounts")));
  const auto json = Json::parse(slurm(cluster, "report --json " + job).out).at("reports").at(0);
  EXPECT_EQ(json.at("gpu_source"), "yoke");
  EXPECT_EQ(json.at("nodes").size(), 2U);
  EXPECT_EQ(json.at("nodes")[0].at("host"), "n1");
  EXPECT_GT(json.at("nodes")[0].at("cpu_seconds"), 0.05);
  EXPECT_GT(json.at("nodes")[0].at("memory_peak_bytes"), 100'000);
  EXPECT_FALSE(json.at("nodes")[0].at("devices").empty());
  EXPECT_TRUE(json.at("nodes")[0].at("is_finished"));
  EXPECT_EQ(slurm(cluster, "report 9999").exit_code, 66);
  EXPECT_EQ(slurm(cluster, "top " + job).exit_code, 69);
  EXPECT_THAT(slurm(cluster, "sample -- sh -c 'exit 3'").err, HasSubstr("this is not a job of Slurm"));
  // A number in the name of a file need not be that of the job.
  const auto array = submit(cluster, "--array=1-3 --wrap true");
  ASSERT_TRUE(cluster.wait_for_state(array + "_3", "COMPLETED"));
  const auto range = slurm(cluster, "report '" + array + "_[1-2]'");
  EXPECT_THAT(range.out, AllOf(HasSubstr("job " + array + "_1 "), HasSubstr("job " + array + "_2 "),
                               Not(HasSubstr("job " + array + "_3 "))));
  EXPECT_EQ(slurm(cluster, "report '" + array + "_[8-9]'").exit_code, 66);
  // A job that nobody knows does not keep the others from their reports; 5-7 are jobs.
  const auto some = slurm(cluster, "report " + job + "-" + job + " 9998,9999");
  EXPECT_EQ(some.exit_code, 66);
  EXPECT_THAT(some.out, HasSubstr("job " + job + " (train)"));
  EXPECT_THAT(some.err, HasSubstr("know job 9999"));
  const auto tasks = Json::parse(slurm(cluster, "report --json " + array).out).at("reports");
  ASSERT_EQ(tasks.size(), 3U);  // in the order of tasks, of which the last one has the array's number
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(tasks[i].at("job").at("id"), array + "_" + std::to_string(i + 1));
  // The numbers of an array's tasks follow each other. Tasks that the array's number has told are not told again.
  const auto once = Json::parse(slurm(cluster, "report --json " + numbers_from(array, 3)).out);
  EXPECT_EQ(once.at("reports"), tasks);
  EXPECT_EQ(once.at("arrays").size(), 1U);
  const auto both = Json::parse(slurm(cluster, "report --json " + numbers_from(array, 3) + " " + array + "_2").out);
  EXPECT_EQ(both.at("reports").size(), 4U) << "the user names the task";
  const auto other = slurm(cluster, "report lr" + job + "e-" + job + "_seed9.out");
  EXPECT_EQ(other.exit_code, 66);
  EXPECT_THAT(other.err, HasSubstr("is not an output of job " + job));
  const auto moved = slurm(cluster, "report moved/slurm-" + job + ".out");
  EXPECT_THAT(moved.out, HasSubstr("the number was taken from its name"));
  // The samples alone do not tell what the job has.
  cluster.kill_daemon("slurmctld");
  const auto alone = slurm(cluster, "report " + job);
  EXPECT_THAT(alone.out, AllOf(HasSubstr("state, nodes, CPUs and GPUs not known"), HasSubstr("time      not known; "),
                               HasSubstr("scontrol cannot reach slurmctld")));
}

TEST(SlurmWatching, KnowsThatAStepWasOutOfMemory) {
  if (const auto reason = SlurmCluster::why_not(true); !reason.empty()) GTEST_SKIP() << reason;
  SlurmCluster cluster({"--cgroups", "--accounting", "--cpus", "4", "--gpus", "2", "1"});
  cluster.shell(kFolder + "printf '%s\\n' 'b = []' 'while True: b.append(bytearray(b\"x\" * (1 << 20)))' > oom.py",
                "ada");
  const auto job = submit(cluster, "--mem=100 -c1 -t 5 --wrap 'srun python3 oom.py'");
  ASSERT_TRUE(cluster.wait_for_state(job, "FAILED"));
  const auto sampled =
      submit(cluster, "--mem=100 -c1 -t 5 --wrap 'srun " YOKE_COMMAND " slurm sample -- python3 oom.py'");
  ASSERT_TRUE(cluster.wait_for_state(sampled, "FAILED"));
  const auto samples = cluster.shell(kFolder + "cat .local/state/yoke/slurm/" + sampled + "/*.json", "ada").out;
  EXPECT_THAT(samples, AllOf(HasSubstr("\"num_oom_kills\": 1"), HasSubstr("\"source\": \"cgroup")));
  for (const auto& one : {job, sampled}) {
    const auto is_told = [&] {
      return slurm(cluster, "report --json " + one).out.find("\"kind\": \"memory-out\"") != std::string::npos;
    };
    EXPECT_TRUE(wait_until(is_told, milliseconds(60'000))) << slurm(cluster, "report " + one).out;
  }
  EXPECT_THAT(cluster.run({YOKE_COMMAND, "slurm", "report", sampled}).out,
              HasSubstr("are in a folder of ada and were not read"));

  // A task of a sweep that ran out of memory gets more of it, and the others what they had.
  const auto sweep = slurm(cluster,
                           "array --param n=0,1,2 --sbatch '--mem=100 -c1 -t 5' -- sh -c "
                           "'[ -e ../../go ] || [ $0 != 2 ] || exit 3; [ -e ../../go ] || [ $0 != 1 ] || "
                           "srun python3 ../../oom.py' {n}");
  ASSERT_EQ(sweep.exit_code, 0) << sweep.err;
  const auto collect = [&] { return slurm(cluster, "array --collect sweep --csv"); };
  const auto is_out_of_memory = [&] {
    const auto result = collect();
    return result.exit_code == 1 && result.out.find("1,failed (OUT_OF_MEMORY),1") != std::string::npos;
  };
  ASSERT_TRUE(wait_until(is_out_of_memory, milliseconds(90'000))) << collect().out;
  EXPECT_THAT(collect().out, HasSubstr("0,done,0"));
  const auto sweep_job = sweep.out.substr(4, sweep.out.find(':') - 4);
  const auto out_of_memory = [&] {
    return Json::parse(slurm(cluster, "report --json " + sweep_job).out).at("arrays").at(0).at("out_of_memory");
  };
  EXPECT_TRUE(wait_until([&] { return out_of_memory() == Json({1}); }, milliseconds(60'000))) << out_of_memory();
  // No node has 100 times the memory. The other task is submitted all the same, and both are told.
  const auto refused = slurm(cluster, "array --rerun sweep --grow 100 --json");
  EXPECT_EQ(refused.exit_code, 69) << refused.err;
  const auto parts = Json::parse(refused.out);
  EXPECT_EQ(parts.at("reruns").at(0).at("tasks"), Json({2})) << refused.out;
  EXPECT_EQ(parts.at("failed").at(0).at("tasks"), Json({1}));
  EXPECT_THAT(parts.at("failed").at(0).at("error").get<std::string>(), HasSubstr("sbatch refused the job"));
  const auto rerun_2 = parts.at("reruns").at(0).at("job").get<std::string>() + "_2";
  ASSERT_TRUE(cluster.wait_for_state(rerun_2, "FAILED"));
  ASSERT_TRUE(wait_until(is_out_of_memory, milliseconds(90'000))) << collect().out;
  EXPECT_THAT(collect().err, HasSubstr("task 2 failed (3) as job " + rerun_2)) << "sweep.json has the new job";
  cluster.shell(kFolder + "touch go", "ada");
  const auto larger = slurm(cluster, "array --rerun sweep --grow 3");
  EXPECT_THAT(larger.out, HasSubstr(": task 1 again, with --mem=100 -c1 -t 5 --mem=300M")) << larger.err;
  EXPECT_TRUE(wait_until([&] { return collect().exit_code == 0; }, milliseconds(90'000))) << collect().out;
  const auto larger_job = larger.out.substr(4, larger.out.find(':') - 4);
  EXPECT_THAT(cluster.run({"scontrol", "show", "job", larger_job}).out, HasSubstr("MinMemoryNode=300M"));

  // This cluster also confines devices. --cpus-per-gpu does not divide GPUs among tasks; binding them does
  // (docs/slurm-check.md, Which options keep GPUs from reaching each other).
  const auto opened = [&](const std::string& options, const std::string& step) {
    return cluster
        .shell("salloc -Q -N1 -n2 " + options + " srun " + step +
               " sh -c 'n=0; for device in $SLURM_TEST_DIR/dev/*; do (: <$device) 2>/dev/null && n=$((n + 1)); done; "
               "echo $n'")
        .out;
  };
  EXPECT_EQ(opened("--gpus-per-node=2 --cpus-per-gpu=1", ""), "2\n2\n");
  EXPECT_EQ(opened("--gpus-per-node=2", "--gpus-per-task=1"), "1\n1\n");
  EXPECT_EQ(opened("--gpus-per-task=1 --cpus-per-gpu=1", ""), "1\n1\n");
  EXPECT_EQ(opened("--gpus-per-task=1 --cpus-per-gpu=1", "--gpu-bind=none"), "2\n2\n");
}

TEST(SlurmWatching, RunsSweepsAndResumesJobs) {
  if (const auto reason = SlurmCluster::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  SlurmCluster cluster({"--cpus", "8", "2"});
  cluster.shell(
      kFolder + "printf '%s\\n' 'echo step,loss > metrics.csv; echo 1,$1$2 >> metrics.csv' '[ $1 != 2 ]' > train.sh",
      "ada");
  const auto sweep =
      slurm(cluster, "array --param a=1,2 --param b=5,6 --sbatch '-t 5 --comment=\"my sweep\"' -- sh train.sh {a} {b}");
  ASSERT_EQ(sweep.exit_code, 0) << sweep.err;
  const auto job = sweep.out.substr(4, sweep.out.find(':') - 4);
  EXPECT_THAT(cluster.run({"scontrol", "show", "job", job}).out, HasSubstr("Comment=my sweep "));
  const std::string home = "$SLURM_TEST_DIR/home/ada/";
  EXPECT_TRUE(wait_until([&] { return cluster.shell("cut -c1 " + home + "sweep/*/status").out == "0\n0\n1\n1\n"; },
                         milliseconds(90'000)));
  const auto results = slurm(cluster, "array --collect " + job + " --csv");
  EXPECT_EQ(results.exit_code, 1);
  EXPECT_THAT(results.out,
              AllOf(HasSubstr("task,state,a,b,loss\n0,done,1,5,15\n"), HasSubstr("3,failed (1),2,6,26\n")));
  EXPECT_THAT(results.err, HasSubstr("task 2 failed (1)"));
  EXPECT_EQ(slurm(cluster, "array --param a=1,2 -- sh train.sh {a}").exit_code, 69);  // the folder has a sweep
  EXPECT_THAT(slurm(cluster, "report sweep/2/slurm.out").out, HasSubstr("job " + job + "_2 (sweep) of ada: FAILED"));
  // Nothing is left of a sweep that sbatch refused.
  EXPECT_EQ(slurm(cluster, "array --folder no --param a=1 --sbatch '-p nope' -- echo {a}").exit_code, 69);
  EXPECT_EQ(cluster.shell("ls " + home + "no").out, "");
  for (const auto* option : {"--arr 1", "-Dx", "--outp=x", "--test-only", "word"}) {
    const auto refused =
        slurm(cluster, "array --folder no --param a=1 --sbatch '" + std::string(option) + "' -- echo {a}");
    EXPECT_EQ(refused.exit_code, 64) << option;
  }
  const auto missing = slurm(cluster, "array --folder no --param a=1 -- ./nothing.sh {a}");
  EXPECT_EQ(missing.exit_code, 66);
  EXPECT_THAT(missing.err, HasSubstr("there is no ./nothing.sh in this folder"));
  // A task that Slurm ended has left no status.
  const auto ended = slurm(cluster, "array --folder ended --param a=0,100 -- sleep {a}").out;
  const auto ended_job = ended.substr(4, ended.find(':') - 4);
  ASSERT_TRUE(wait_until([&] { return cluster.shell("cut -c1 " + home + "ended/*/status").out == "0\n"; },
                         milliseconds(90'000)));
  ASSERT_TRUE(cluster.wait_for_state(ended_job + "_1", "RUNNING"));
  const auto unended = slurm(cluster, "array --collect ended --csv");
  EXPECT_EQ(unended.exit_code, 75) << "a loop can wait for it";
  EXPECT_THAT(unended.out, HasSubstr("1,not ended,100"));
  EXPECT_THAT(unended.err, HasSubstr("1 of 2 tasks has not ended"));
  cluster.run({"scancel", ended_job + "_1"});
  ASSERT_TRUE(cluster.wait_for_state(ended_job + "_1", "CANCELLED"));
  const auto collected = slurm(cluster, "array --collect ended --csv");
  EXPECT_EQ(collected.exit_code, 1);
  EXPECT_THAT(collected.out, HasSubstr("1,failed (CANCELLED),100"));
  // It runs again in another array, with the options of both command lines, and what it printed is kept.
  EXPECT_THAT(slurm(cluster, "array --rerun ended --dry-run --sbatch '-t 8' --sbatch=-c1").out,
              AllOf(HasSubstr("--array=1 "), HasSubstr("-t 8 -c1")));
  const auto rerun = slurm(cluster, "array --rerun ended --sbatch '-t 7' --json");
  ASSERT_EQ(rerun.exit_code, 0) << rerun.err;
  const auto reruns = Json::parse(rerun.out).at("reruns");
  EXPECT_EQ(reruns.at(0).at("tasks"), Json({1}));
  EXPECT_EQ(reruns.at(0).at("options"), Json({"-t", "7"}));
  const auto rerun_job = reruns.at(0).at("job").get<std::string>();
  ASSERT_TRUE(cluster.wait_for_state(rerun_job + "_1", "RUNNING"));
  EXPECT_THAT(cluster.run({"scontrol", "show", "job", rerun_job}).out, HasSubstr("TimeLimit=00:07:00"));
  EXPECT_EQ(cluster.shell("ls " + home + "ended/1/slurm.out.0").exit_code, 0);
  for (const auto& name : {std::string("ended"), ended_job, rerun_job}) {
    const auto running = slurm(cluster, "array --collect " + name + " --csv");
    EXPECT_EQ(running.exit_code, 75) << name;
    EXPECT_THAT(running.out, AllOf(HasSubstr("0,done,0"), HasSubstr("1,not ended,100"))) << name;
  }
  EXPECT_THAT(slurm(cluster, "array --rerun ended").out, HasSubstr("no task has failed; 1 of 2 have not ended"));
  EXPECT_THAT(slurm(cluster, "report ended/1/slurm.out").out, HasSubstr("job " + rerun_job + "_1 "));
  const auto twice = slurm(cluster, "resume " + ended_job + "_1");
  EXPECT_EQ(twice.exit_code, 69) << "two jobs would write into its folder";
  EXPECT_THAT(twice.err, HasSubstr("runs again since, or has run again, as job " + rerun_job + "_1"));
  cluster.run({"scancel", rerun_job});
  // Each task starts after the one with its number of another sweep, and the values are lines of a file.
  cluster.shell(kFolder + "printf 'a,words\\n1,\"x,y\"\\n2,z\\n' > runs.csv", "ada");
  const auto first =
      slurm(cluster, "array --folder first --param a=1,2 -- sh -c 'until [ -e ../../go$0 ]; do sleep 0.05; done' {a}")
          .out;
  const auto second = slurm(cluster, "array --folder second --param-file runs.csv --sbatch '-d aftercorr:" +
                                         first.substr(4, first.find(':') - 4) + "' -- printf %s {words}");
  EXPECT_EQ(second.exit_code, 0) << second.err;
  cluster.shell(kFolder + "touch go2", "ada");
  EXPECT_TRUE(
      wait_until([&] { return cluster.shell("cat " + home + "second/*/slurm.out").out == "z"; }, milliseconds(90'000)));
  EXPECT_THAT(slurm(cluster, "array --collect second --csv").out, HasSubstr("0,not ended,1,\"x,y\"\n"));
  cluster.shell(kFolder + "touch go1", "ada");
  EXPECT_TRUE(wait_until([&] { return cluster.shell("cat " + home + "second/*/slurm.out").out == "x,yz"; },
                         milliseconds(90'000)));
  // Tasks that are cancelled in the queue have no output.
  const auto never = slurm(cluster, "array --folder never --param a=1,2 --sbatch --begin=now+1hour -- echo {a}").out;
  cluster.run({"scancel", never.substr(4, never.find(':') - 4)});
  const auto unstarted = slurm(cluster, "array --collect never --csv");
  EXPECT_EQ(unstarted.exit_code, 1);
  EXPECT_THAT(unstarted.out, AllOf(HasSubstr("0,never started (CANCELLED),1"), HasSubstr("1,never started")));
  EXPECT_THAT(slurm(cluster, "array --rerun never --sbatch --begin=now").out, HasSubstr(": tasks 0,1 again, with "));
  EXPECT_TRUE(wait_until([&] { return slurm(cluster, "array --collect never").exit_code == 0; }, milliseconds(90'000)))
      << slurm(cluster, "array --collect never").out;
  // A task that waits again has not ended, whatever its last run has left.
  EXPECT_EQ(slurm(cluster, "resume " + job + "_2").exit_code, 0);
  const auto again = slurm(cluster, "array --collect sweep --csv");
  EXPECT_EQ(again.exit_code, 75) << again.err;
  EXPECT_THAT(again.out, AllOf(HasSubstr("2,not ended,2,5"), HasSubstr("3,failed (1),2,6")));
  // Another cluster may have a job of this number.
  EXPECT_EQ(
      cluster
          .shell("sed -i 's/\"cluster\": \"yoke\"/\"cluster\": \"beta\"/w /dev/stdout' " + home + "ended/sweep.json",
                 "ada")
          .out,
      " \"cluster\": \"beta\"\n");
  for (const auto* words : {"array --collect ended", "report ended/1/slurm.out"}) {
    const auto elsewhere = slurm(cluster, words);
    EXPECT_EQ(elsewhere.exit_code, 69) << words;
    EXPECT_THAT(elsewhere.err, HasSubstr("is of cluster beta")) << words;
  }

  const auto failing = submit(cluster,
                              "-o out.txt -e err.txt --wrap 'echo run $SLURM_RESTART_COUNT; echo error >&2; "
                              "touch step-7.pt; exit 4'");
  ASSERT_TRUE(cluster.wait_for_state(failing, "FAILED"));
  EXPECT_THAT(slurm(cluster, "resume --dry-run " + failing).out, HasSubstr("step-7.pt"));
  const auto foreign = cluster.run({YOKE_COMMAND, "slurm", "resume", "--dry-run", failing}, "bob");
  EXPECT_EQ(foreign.exit_code, 77) << foreign.out;
  EXPECT_THAT(foreign.err, HasSubstr("is of ada"));
  // Its user alone can keep the output, and Slurm would truncate a file that cannot be renamed.
  EXPECT_EQ(cluster.run({YOKE_COMMAND, "slurm", "resume", failing}).exit_code, 77);
  cluster.shell(kFolder + "mv err.txt err; ln -s err err.txt", "ada");
  EXPECT_EQ(slurm(cluster, "resume " + failing).exit_code, 77);
  EXPECT_EQ(cluster.shell("ls " + home + "out.txt").exit_code, 0) << "it has its name again";
  cluster.shell(kFolder + "mv err err.txt; echo mine > out.txt.0", "ada");
  const auto resumed = slurm(cluster, "resume " + failing);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, AllOf(HasSubstr("out.txt.1"), HasSubstr("err.txt.0")));
  EXPECT_EQ(cluster.shell("cd " + home + "; cat out.txt.0 out.txt.1 err.txt.0").out, "mine\nrun\nerror\n");
  EXPECT_EQ(slurm(cluster, "resume " + failing).exit_code, 69);  // it waits again
  EXPECT_EQ(slurm(cluster, "resume 9999").exit_code, 66);
  EXPECT_THAT(slurm(cluster, "resume " + job).err, HasSubstr("name the task to resume, as " + job + "_0"));
  EXPECT_THAT(slurm(cluster, "array --collect no").err, HasSubstr("no has no sweep"));
}

TEST(SlurmWatching, TellsOfJobsThatHavePrintedNothingSinceTheyWereResumed) {
  if (const auto reason = SlurmCluster::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  SlurmCluster cluster({"--network", "--cpus", "8", "2"});
  const auto job = submit(cluster, "--wrap 'echo first'");
  ASSERT_TRUE(cluster.wait_for_state(job, "COMPLETED"));
  const auto planned = slurm(cluster, "resume --dry-run " + job);
  EXPECT_THAT(planned.err, HasSubstr("job " + job + " is COMPLETED: it ended with status 0"));
  const auto resumed = slurm(cluster, "resume " + job);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, AllOf(HasSubstr("is COMPLETED"), HasSubstr("`scancel " + job + "` stops that")));
  ASSERT_TRUE(cluster.wait_for_state(job, "PENDING"));
  const auto kept = "what it printed before is in " + cluster.folder() + "/home/ada/slurm-" + job + ".out.0";
  const auto waiting = slurm(cluster, "logs " + job);
  EXPECT_EQ(waiting.exit_code, 66);
  EXPECT_THAT(waiting.err, AllOf(HasSubstr("job " + job + " waits in the queue"), HasSubstr(kept)));
  EXPECT_THAT(waiting.err, Not(HasSubstr("No such file")));
  const auto followed = slurm(cluster, "logs -f " + job + " 2>said & until grep -q waits said; do sleep 0.05; done; " +
                                           "kill $!; wait $!; cat said");
  EXPECT_THAT(followed.out, AllOf(HasSubstr("job " + job + " waits in the queue"), HasSubstr(kept)));
  cluster.run({"scancel", job});
  ASSERT_TRUE(cluster.wait_for_state(job, "CANCELLED"));
  const auto ended = slurm(cluster, "logs " + job);
  EXPECT_EQ(ended.exit_code, 66);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("it ended before it started again"), HasSubstr(kept)));

  // Following says once that a job waits again, after it has printed something.
  const auto again = submit(cluster, "--requeue --wrap 'echo begun; sleep 1000'");
  ASSERT_TRUE(cluster.wait_for_state(again, "RUNNING"));
  Command following({.argv = cluster.in({"sh", "-c", kFolder + YOKE_COMMAND " slurm logs -f " + again}, "ada")});
  ASSERT_TRUE(following.wait_for_output("begun"));
  cluster.run({"scontrol", "requeue", again});
  EXPECT_TRUE(following.wait_for_output("job " + again + " waits in the queue again")) << following.err();
  cluster.run({"scancel", again});
  EXPECT_EQ(following.wait().exit_code, 0);

  const auto held = submit(cluster, "--hold --wrap true");
  cluster.run({"scancel", held});
  ASSERT_TRUE(cluster.wait_for_state(held, "CANCELLED"));
  const auto never = slurm(cluster, "logs " + held);
  EXPECT_EQ(never.exit_code, 66);
  EXPECT_THAT(never.err, HasSubstr("job " + held + " is CANCELLED: it ended before it started"));

  // A sweep says if its tasks reserve more than they use, and `yoke run` uses it.
  const std::string words = "array --param a=1 --sbatch '-N2 -n4 -t 5' --folder ";
  const auto once = slurm(cluster, words + "once --dry-run -- echo {a}");
  EXPECT_EQ(once.exit_code, 0);
  EXPECT_THAT(once.err, HasSubstr("runs the program once"));
  const auto whole = slurm(cluster, words + "whole -- " YOKE_COMMAND " run sh -c 'echo $0 $RANK/$WORLD_SIZE' {a}");
  EXPECT_EQ(whole.err, "");
  EXPECT_TRUE(
      wait_until([&] { return slurm(cluster, "array --collect whole").exit_code != 75; }, milliseconds(90'000)));
  EXPECT_THAT(cluster.shell(kFolder + "cat whole/0/slurm.out", "ada").out, HasSubstr("1 3/4\n"));
}

TEST(SlurmWatching, TakesTheAccountsOfAJobThatWasNotSampled) {
  if (const auto reason = SlurmCluster::why_not(true); !reason.empty()) GTEST_SKIP() << reason;
  SlurmCluster cluster({"--accounting", "--cpus", "4", "1"});
  const auto job = submit(cluster, "-c2 -t 5 --wrap 'i=0; while [ $i -lt 1500000 ]; do i=$((i+1)); done'");
  const auto has_use = [&] {
    const auto text = slurm(cluster, "report --json " + job).out;
    return text.find("\"cpu_source\": \"Slurm\"") != text.npos;
  };
  ASSERT_TRUE(wait_until(has_use, milliseconds(90'000))) << slurm(cluster, "report --json " + job).out;
  const auto json = Json::parse(slurm(cluster, "report --json " + job).out).at("reports").at(0);
  EXPECT_GT(json.at("cpu_percent"), 0) << "it is known; how much it is depends on the other load of the machine";
  EXPECT_EQ(json.at("time_percent").is_null(), false);
  EXPECT_THAT(json.at("unknown").dump(), HasSubstr("energy is not known"));

  // A slurmctld without its old state uses the numbers again.
  const auto sampled = [&](const std::string& name) {
    return submit(
        cluster, "-t 5 -J " + name + " --wrap '" YOKE_COMMAND " slurm sample -- sh -c \"sleep 1; echo " + name + "\"'");
  };
  const auto old = sampled("old");
  const auto accounted = [&] {
    return cluster.run({"sacct", "-D", "-X", "-n", "-P", "-j", old, "-o", "JobName,State"}).out;
  };
  const auto are_accounted = [&](const std::string& jobs) {
    return wait_until([&] { return accounted() == jobs; }, milliseconds(90'000));
  };
  ASSERT_TRUE(are_accounted("old|COMPLETED\n")) << accounted();
  ASSERT_EQ(Json::parse(slurm(cluster, "report --json " + old).out).at("reports")[0].at("nodes").size(), 1U);
  cluster.kill_daemon("slurmctld");
  ASSERT_EQ(cluster.shell("rm -r $SLURM_TEST_DIR/state/* && slurmctld -i").exit_code, 0);
  ASSERT_EQ(submit(cluster, "--wrap true"), job);
  ASSERT_EQ(sampled("new"), old);
  ASSERT_TRUE(are_accounted("old|COMPLETED\nnew|COMPLETED\n")) << accounted();
  const auto reports = Json::parse(slurm(cluster, "report --json " + old).out).at("reports");
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].at("job").at("name"), "new");
  EXPECT_EQ(reports[0].at("job").at("num_restarts"), 0);
  EXPECT_EQ(reports[0].at("earlier_runs_seconds"), nullptr);
  ASSERT_EQ(reports[0].at("nodes").size(), 1U);
  EXPECT_GE(reports[0].at("nodes")[0].at("begin_seconds"), reports[0].at("job").at("submit_seconds"));
  EXPECT_LT(reports[0].at("nodes")[0].at("num_samples"), 5) << "those of both jobs";

  // An array is summed up. Oracle: sacct itself.
  const auto array = submit(cluster, "--array=0-2 -c1 -t 5 --wrap 'test $SLURM_ARRAY_TASK_ID != 2'");
  const auto accounts = [&](const std::string& column) {
    return cluster.shell("sacct -X -n -P -o " + column + " -j " + array + " | sort -n").out;
  };
  ASSERT_TRUE(wait_until([&] { return accounts("State") == "COMPLETED\nCOMPLETED\nFAILED\n"; }, milliseconds(90'000)))
      << accounts("State");
  const auto lengths = accounts("ElapsedRaw");
  const auto longest = lengths.substr(lengths.rfind('\n', lengths.size() - 2) + 1);
  const auto summary = Json::parse(slurm(cluster, "report --json " + array).out);
  EXPECT_EQ(summary.at("reports").size(), 3U);
  EXPECT_EQ(summary.at("arrays").at(0).at("states"), (Json{{"COMPLETED", {0, 1}}, {"FAILED", {2}}}));
  const auto& elapsed = summary.at("arrays").at(0).at("elapsed_seconds");
  EXPECT_EQ(std::to_string(static_cast<int>(elapsed.at("most"))) + "\n", longest);
  EXPECT_EQ(elapsed.at("num_tasks"), 3);
  EXPECT_EQ(elapsed.at("limit"), 300);
  EXPECT_THAT(slurm(cluster, "report " + array).out, HasSubstr("array " + array + " (wrap) of ada: 3 tasks"));

  // slurmctld drops tasks that are cancelled in the queue, and the accounts have them if they had recorded the array.
  const auto queued = submit(cluster, "--hold --array=0-3 --wrap true");
  ASSERT_TRUE(wait_until(
      [&] {
        return cluster.run({"sacct", "-X", "-n", "-j", queued}).out != "";
      },
      milliseconds(60'000)));
  cluster.run({"scancel", queued + "_[1-2]"});
  const auto states = [&] {
    return Json::parse(slurm(cluster, "report --json " + queued).out).at("arrays").at(0).at("states");
  };
  EXPECT_TRUE(wait_until(
      [&] {
        return states() == Json{{"PENDING", {0, 3}}, {"CANCELLED", {1, 2}}};
      },
      milliseconds(60'000)))
      << states();
  // sacct does not know such a task by its name.
  EXPECT_EQ(cluster.run({"sacct", "-X", "-n", "-j", queued + "_1"}).out, "");
  // For a moment neither slurmctld nor the accounts may know it.
  test::Result cancelled;
  EXPECT_TRUE(wait_until(
      [&] {
        cancelled = slurm(cluster, "report " + queued + "_1");
        return cancelled.exit_code == 0;
      },
      milliseconds(60'000)))
      << cancelled.err;
  EXPECT_THAT(cancelled.out,
              AllOf(HasSubstr("job " + queued + "_[1,2] "), HasSubstr("CANCELLED"), Not(HasSubstr("PENDING"))));
  const auto lacking = slurm(cluster, "report " + queued + "_9");
  EXPECT_EQ(lacking.exit_code, 66);
  EXPECT_THAT(lacking.err, HasSubstr("know job " + queued + "_9"));
}

}  // namespace
}  // namespace yoke::test
