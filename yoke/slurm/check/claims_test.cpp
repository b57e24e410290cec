// What the rules claim: how serious a mistake is, where it is refused, and what is right although it looks unusual.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "yoke/slurm/check/report.h"
#include "yoke/slurm/words/cpu_bind.h"

namespace yoke::slurm::check {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<Finding> claims_in(const std::string& text, const char* version = "22.05") {
  const auto script = read_script("job.sh", text);
  return check({.script = script, .version = parse_version(version), .site = nullptr});
}

/// "error:rule" of errors and warnings, in the order of lines.
std::vector<std::string> serious(const std::vector<Finding>& findings) {
  std::vector<std::string> result;
  for (const auto& finding : findings) {
    if (finding.severity != Severity::kNote) result.push_back(std::string(name(finding.severity)) + ":" + finding.rule);
  }
  return result;
}

constexpr const char* kStart = "#!/bin/bash\n#SBATCH --time=10:00 --mem=1G\n";

struct Claim {
  const char* text;       ///< After kStart.
  const char* expected;   ///< The errors and warnings, separated by spaces.
  const char* part = "";  ///< Of the first message.
};

TEST(SlurmCheckClaims, AreThoseOfSlurm) {
  const std::vector<Claim> claims = {
      // Without --cpus-per-task, a step still has all CPUs of its job on the node, unless something confines it.
      {"#SBATCH -c8\nsrun ./x\n", ""},
      {"#SBATCH -N2 --ntasks-per-node=1 -c8\nsrun ./x\n", ""},
      {"#SBATCH -N1 --ntasks-per-node=4 -c8\nsrun ./x\n", ""},
      {"#SBATCH -c8\nsrun --cpu-bind=none ./x\n", ""},
      {"#SBATCH -c8\nsrun --cpu-bind=sockets ./x\n", ""},
      {"#SBATCH -c8\nsrun --cpu-bind=cores ./x\n", "warning:step-cpus-per-task", "--cpu-bind=cores gives"},
      {"#SBATCH -c2\nsrun --cpu-bind=cores ./x\n", ""},
      {"#SBATCH -c2\nsrun --cpu-bind=threads ./x\n", "warning:step-cpus-per-task"},
      {"#SBATCH -c8 --hint=nomultithread\nsrun --cpu-bind=none ./x\n", ""},
      {"#SBATCH -c8\nsrun --exclusive ./x\n", "warning:step-cpus-per-task", "--exclusive gives"},
      {"#SBATCH -c8\nexport SLURM_CPU_BIND=cores\nsrun ./x\n", "warning:step-cpus-per-task", "SLURM_CPU_BIND gives"},
      {"#SBATCH -N1 --ntasks-per-node=4 -c8 --hint=nomultithread\nsrun ./x\n", "warning:step-cpus-per-task"},
      // --ntasks-per-gpu raises a smaller number of tasks, and does not reduce a larger one.
      {"#SBATCH --gpus=2 --ntasks-per-gpu=2 -n2\nsrun ./x\n", "warning:ntasks-per-gpu-overrides", "make 4 tasks"},
      {"#SBATCH --gpus=2 --ntasks-per-gpu=2 -n8\nsrun ./x\n", "warning:ntasks-per-gpu-overrides", "starts all of them"},
      {"#SBATCH --gpus=2 --ntasks-per-gpu=2 -n5\nsrun ./x\n", "warning:ntasks-per-gpu-overrides", "srun says"},
      {"#SBATCH --gpus=2 --ntasks-per-gpu=2 -n4\nsrun ./x\n", ""},
      {"#SBATCH -N1 --gpus-per-node=2 --ntasks-per-gpu=2 -n2\nsrun ./x\n", "warning:ntasks-per-gpu-overrides"},
      {"#SBATCH -N1 --gpus-per-node=2 --ntasks-per-gpu=2 -n8\nsrun ./x\n", "error:ntasks-per-gpu-overrides", "refused"},
      {"#SBATCH --gpus-per-node=2 --ntasks-per-gpu=2 -n8\nsrun ./x\n", ""},
      {"#SBATCH --cpus-per-gpu=2\n./x\n", "warning:per-gpu-without-gpus", "has no effect"},
      {"#SBATCH --ntasks-per-gpu=2\nsrun ./x\n", "error:per-gpu-without-gpus", "refused"},
      // Of two entries for one kind of GPUs, the last one counts.
      {"#SBATCH -N1 --gres=gpu:2,gpu:3 --gpus-per-node=3\nsrun ./x\n", "warning:duplicate-option",
       "the last one counts"},
      {"#SBATCH --gpus-per-node=1,2\nsrun ./x\n", "warning:duplicate-option", "asks for 1 and for 2"},
      {"#SBATCH --gres=gpu:a100:1,gpu:h100:2,nvme:1\nsrun ./x\n", ""},
      // srun asks for what --gpus-per-node says.
      {"#SBATCH -N1 --gres=gpu:2 --gpus-per-node=4\nsrun ./x\n", "error:gres-differs", "more than the job's"},
      {"#SBATCH -N1 --gres=gpu:2 --gpus-per-node=4\n./x\n", "warning:gres-differs"},
      {"#SBATCH -N1 --gres=gpu:2 --gpus-per-node=4\nsrun --gres=gpu:1 ./x\n", "warning:gres-differs"},
      {"#SBATCH -N1 --gres=gpu:4 --gpus-per-node=2\nsrun ./x\n", "warning:gres-differs"},
      // --export, without regard to the case of its words.
      {"#SBATCH --export=all\nsrun ./x\n", ""},
      {"#SBATCH --export=All,A=1\nsrun ./x\n", ""},
      {"#SBATCH --export=A=1,aLL\nsrun ./x\n", ""},
      {"#SBATCH --export=A=1\nsrun ./x\n", "warning:export-without-all"},
      {"#SBATCH --export=none\nsrun ./x\n", "warning:export-without-all", "inherits --export=none"},
      {"#SBATCH --export=\nsrun ./x\n", "warning:space-at-equals warning:export-without-all"},
      // Values of options that take any text.
      {"#SBATCH -J=foo -o=out.txt\n./x\n", "warning:space-at-equals warning:space-at-equals", "without ="},
      {"#SBATCH --job-name =foo\n./x\n", "warning:space-at-equals", "a space before ="},
      {"#SBATCH -n=2\n./x\n", "error:space-at-equals", "without ="},
      {"#SBATCH --job-name\n#SBATCH --ntasks=1\n./x\n", "warning:missing-value", "\"--ntasks=1\" on the next line"},
      {"#SBATCH --ntasks\n#SBATCH --job-name=x\n./x\n", "error:missing-value"},
      {"#SBATCH --job-name\n./x\n", "error:missing-value", "has no value"},
      {"#SLURM -n2\n./x\n", "warning:slurm-directive", "reports an error"},
      {"./x\n#SLURM -n2\n", "warning:slurm-directive", "reads neither"},
      // What looks like a directive.
      {"# #SBATCH --mem=2G\n#  #SBATCH -n2\n#xSBATCH -n2\n#_SBATCH -n2\n#-SBATCH -n2\n###SBATCH -n2\n./x\n", ""},
      {"# SBATCH-style comments are read by sbatch\n# SBATCH lines come first\n./x\n", ""},
      {"#SSBATCH -n2\n./x\n", "warning:misspelt-directive"},
      {"# SBATCH --mem=2G\n./x\n", "warning:misspelt-directive"},
      {"echo \"#!/bin/bash\n#SBATCH -n2\n# SBATCH -n1\n#SLURM -n1\n./run\" >sub.sh\nsbatch sub.sh\n", ""},
      {"T='#!/bin/bash\n#SBATCH -n 1\n./run\n'\necho \"$T\" | sbatch\n", ""},
      {"echo \"a\n#SBATCH -n2\n\"\n#SBATCH -n3\n", "warning:late-directive", "-n3"},
      {"echo it's\n#SBATCH -n3\n", "warning:late-directive"},
      // Variables that others may set.
      {"cd $MEMBERWORK/x/$OSTYPE\n", ""},
      {"#SBATCH --export=ALL,foo=1\necho $foo\n", ""},
      {"coproc cp { cat; }\necho hi >&${cp[1]}; echo $cp_PID\n", ""},
      {"data_dir=/d\ncp $data_dri/x .\n", "warning:undefined-variable"},
      {"echo $SLURM_PACK_SIZE\n", ""},
      // The tasks read the script themselves.
      {"#SBATCH -n4\nif [[ -z $SLURM_STEP_ID ]]; then exec srun \"$0\"; fi\nexport RANK=$SLURM_PROCID\n./x\n", ""},
      {"#SBATCH -n4\nexport RANK=$SLURM_PROCID\nsrun ./x\n", "warning:rank-in-batch-shell"},
      // In a job with one component, each part of srun is taken for one; a name alone is refused.
      {"#SBATCH -N3\nsrun --het-group=0 -N1 ./a : --het-group=1 -N2 ./b\n", ""},
      {"#SBATCH -N3\nsrun --het-group=1 ./a\n", "error:step-elsewhere", "not heterogeneous"},
      // Without a number of tasks, Slurm takes what the GPUs allow.
      {"#SBATCH -N2 --gpus-per-node=2 --gpus-per-task=1\nsrun ./x\n", ""},
      {"#SBATCH -N2 --ntasks-per-node=1 --gpus-per-node=2 --gpus-per-task=1\nsrun ./x\n",
       "error:gpus-per-task-mismatch"},
      {"#SBATCH -N1 --gpus-per-node=4 --gpus-per-task=2\n./x\n", "error:gpus-per-task-mismatch", "1 task with 2 GPUs"},
      {"#SBATCH -N2 -n4 --gpus-per-node=4 --gpus-per-task=1\nmpirun ./x\n", ""},
      {"#SBATCH -N3 -n6 --gpus-per-node=4 --gpus-per-task=1\nmpirun ./x\n", ""},
      {"#SBATCH -N1 -n2 --exclusive --gpus-per-node=4 --gpus-per-task=1\nmpirun ./x\n", ""},
      {"#SBATCH -N2 -n3 --ntasks-per-node=2\nmpirun ./x\n", "warning:tasks-uneven",
       "SLURM_NTASKS_PER_NODE then says 2"},
      {"#SBATCH -N1 -c2 --gpus=4 --gpus-per-task=2\nmpirun ./x\n", ""},
      // Nodes that are given as a whole have all of their CPUs and GPUs.
      {"#SBATCH -N1 --exclusive --gpus-per-node=1\nexport CUDA_VISIBLE_DEVICES=0,1\n./x\n", ""},
      {"#SBATCH -N1 --exclusive --gpus-per-node=1\ntorchrun --nproc-per-node=4 t.py\n", ""},
      {"#SBATCH -N1 --exclusive=user --gpus-per-node=1\ntorchrun --nproc-per-node=4 t.py\n",
       "warning:workers-and-gpus"},
      {"#SBATCH -N1 -n2 --gpus-per-node=2\nsrun --gpu-bind=map_gpu:0,5 ./x\n", "warning:gpu-map-mismatch",
       "otherwise as the node numbers them"},
      {"#SBATCH -N2\nsrun torchrun --standalone --nnodes=2 t.py\n", "warning:standalone-on-nodes", "waits there"},
      // The folder of a log.
      {"#SBATCH -o logs/%j.out\nmkdir -p logs\n", "warning:log-folder-late", "before 23.02"},
      // --cpu-bind.
      {"srun --cpu-bind=map_cpu:0*4 ./x\n", ""},
      {"srun --cpu-bind=cores,threads ./x\n", "warning:cpu-bind-words", "only threads counts"},
      {"srun --cpu-bind=mask_cpu:0x1,cores ./x\n", "warning:cpu-bind-words", "only mask_cpu counts"},
      {"srun --cpu-bind=map_ldom:x ./x\n", "error:bad-cpu-list"},
      // Numbers.
      {"#SBATCH -n +2 --array=%3\nsrun ./x\n", "warning:ignored-value", "index 0"},
      // Spaces of typography.
      {"#SBATCH\xc2\xa0-n 2\nsrun ./x\n", "error:directive-word", "no-break space"},
      {"#SBATCH -n\xc2\xa0"
       "2\nsrun ./x\n",
       "error:bad-value", "<no-break space>"},
  };
  for (const auto& one : claims) {
    SCOPED_TRACE(one.text);
    const auto found = claims_in(kStart + std::string(one.text));
    std::string joined;
    for (const auto& finding : serious(found)) joined += (joined.empty() ? "" : " ") + finding;
    EXPECT_EQ(joined, one.expected) << to_text({{"job.sh", found}});
    for (const auto& finding : found) {
      if (finding.severity == Severity::kNote) continue;
      EXPECT_THAT(finding.message, HasSubstr(one.part));
      break;
    }
  }
}

// Slurm makes the folder of a log since 23.02.0.
TEST(SlurmCheckClaims, AboutLogFoldersEndWith2205) {
  const std::string text = kStart + std::string("#SBATCH -o logs/%j.out\nmkdir -p logs\n");
  for (const auto* version : {"23.02", "23.11", "25.05", "26.05"})
    EXPECT_THAT(claims_in(text, version), IsEmpty()) << version;
  EXPECT_THAT(serious(claims_in(text, "")), IsEmpty());
  EXPECT_THAT(serious(claims_in(text, "22.05.8")), ElementsAre("warning:log-folder-late"));
}

// srun takes over --cpus-per-task of the job since Slurm 23.11, which implies --exact.
TEST(SlurmCheckClaims, AboutStepsInTurnDependOnTheVersion) {
  const std::string text = kStart + std::string("#SBATCH -n2 -c2\nsrun ./a &\nsrun ./b &\nwait\n");
  for (const auto* version : {"22.05", "23.02"})
    EXPECT_THAT(serious(claims_in(text, version)), ElementsAre("warning:steps-in-turn")) << version;
  for (const auto* version : {"23.11", "24.05", "26.05"})
    EXPECT_THAT(serious(claims_in(text, version)), IsEmpty()) << version;
  EXPECT_THAT(serious(claims_in(text, "")), IsEmpty());
  const std::string set = kStart + std::string(
                                       "#SBATCH -n2 -c2\nexport SRUN_CPUS_PER_TASK=2\nsrun -n1 ./a &\n"
                                       "srun -n1 ./b &\nwait\n");
  EXPECT_THAT(serious(claims_in(set, "22.05")), IsEmpty());
}

// The batch script has no SLURM_GPUS_PER_TASK since Slurm 23.11.
TEST(SlurmCheckClaims, AboutGpusPerTaskDependOnTheVersion) {
  const std::string text = kStart + std::string(
                                        "#SBATCH -N1 -n1 --gpus-per-task=a100:2 -c8\n"
                                        "torchrun --nproc-per-node=$SLURM_GPUS_PER_TASK t.py\n");
  EXPECT_THAT(serious(claims_in(text, "23.02")), ElementsAre("warning:gpu-variable-with-type"));
  EXPECT_THAT(serious(claims_in(text, "23.11")), ElementsAre("warning:slurm-variable-not-set"));
}

TEST(SlurmCheckClaims, ReadCpuBindLikeSrun) {
  for (const auto* taken : {"cores",
                            "cores,verbose",
                            "cores;verbose",
                            "quiet",
                            "no",
                            "none",
                            "rank",
                            "sockets,cores",
                            "cores,none",
                            "mask_cpu:0x1,",
                            "mask_cpu=0x1",
                            "maskcpu:0x1",
                            "mask_cpu:0x",
                            "MASK_CPU:f,F0",
                            "map_cpu:0,,1",
                            "map_cpu=0,1",
                            "map_cpu:0,",
                            "mapcpu:0*2",
                            "mask_cpu:0x1*2,v",
                            "map_ldom:0",
                            "mask_ldom:0x1",
                            "one_thread",
                            "help"}) {
    EXPECT_FALSE(parse_cpu_bind(taken).is_refused()) << taken;
  }
  for (const auto* refused : {"n",
                              "off",
                              "board",
                              "foo",
                              "cores,foo",
                              "cores ",
                              ",cores",
                              "cores,,",
                              "map_cpu",
                              "map_cpu:",
                              "map_cpu:x",
                              "map_cpu:0x3",
                              "map_cpu:-1",
                              "map_cpu:0, 1",
                              "map_cpu:0-3",
                              "map_cpu:0*x",
                              "map_cpu:1,add",
                              "mask_cpu:0X1",
                              "mask_cpu:g",
                              "mask_cpu:0x1*0",
                              "mask_cpu::0x1",
                              "mask_cpu:+1",
                              "mask_cpu:0x1,0x2,g",
                              "map_ldom:x",
                              "mask_ldom:g"}) {
    EXPECT_TRUE(parse_cpu_bind(refused).is_refused()) << refused;
  }
  EXPECT_EQ(parse_cpu_bind("cores,map_cpu:0").effective, "map_cpu");
  EXPECT_EQ(parse_cpu_bind("map_cpu:0,cores").effective, "map_cpu");
  EXPECT_EQ(parse_cpu_bind("mask_cpu:0x3,none").effective, "none");
  EXPECT_EQ(parse_cpu_bind("mask_cpu:0xf*2,0x1,v").entries.size(), 2U);
}

TEST(SlurmCheckClaims, TakeNumbersLikeStrtol) {
  EXPECT_EQ(parse_count("+2"), 2);
  EXPECT_EQ(parse_count(" 4"), 4);
  EXPECT_EQ(parse_count("4 "), std::nullopt);
  EXPECT_EQ(parse_count("0x2"), std::nullopt);
  EXPECT_EQ(parse_mebibytes("+4G"), 4096);
  EXPECT_EQ(parse_minutes("+5"), std::nullopt);
  EXPECT_TRUE(is_array_value("+1-+3"));
  EXPECT_TRUE(is_array_value("%3"));
  EXPECT_FALSE(is_array_value(""));
  EXPECT_EQ(parse_gpus("1,2"), 2);
  EXPECT_EQ(parse_gpus("a100:2,v100:1"), 3);
  EXPECT_EQ(gpus_of_gres("gpu:2,gpu:3"), 3);
  EXPECT_EQ(gpus_of_gres("gpu:a100:2,gpu:h100:3"), 5);
}

TEST(SlurmCheckClaims, KnowWhenAStepIsSurelyTooLarge) {
  const auto severity = [](const std::string& partition, const char* threads) {
    const auto facts =
        parse_facts("SLURM_VERSION = 22.05.8\n", "PartitionName=main Default=YES OverSubscribe=" + partition,
                    std::string("main|8|8000||") + threads);
    const auto script = read_script("job.sh", kStart + std::string("#SBATCH -n2\nsrun -n4 ./x\n"));
    return serious(check({.script = script, .version = facts.version, .site = &facts}));
  };
  EXPECT_THAT(severity("NO", "1"), ElementsAre("error:step-over-job"));
  EXPECT_THAT(severity("NO", "2"), ElementsAre("warning:step-over-job"));
  EXPECT_THAT(severity("EXCLUSIVE", "1"), ElementsAre("warning:step-over-job"));
}

TEST(SlurmCheckClaims, SayOneThingAboutFilesThatAreNoText) {
  std::string binary =
      "\x7f"
      "ELF";
  for (int i = 0; i < 200; ++i) binary += std::string("\0#SBATCH -q\n$UNKNOWN_thing\r\n", 28);
  EXPECT_THAT(serious(claims_in(binary)), ElementsAre("error:nul-byte"));
  const std::string returns = "#!/bin/bash\r#SBATCH --mem=1G --time=10\rhostname\r";
  const auto found = claims_in(returns);
  EXPECT_THAT(serious(found), ElementsAre("error:crlf"));
  EXPECT_EQ(with_fixes(returns, found), "#!/bin/bash\n#SBATCH --mem=1G --time=10\nhostname");
  const std::string spaces = "#!/bin/bash\n#SBATCH\xc2\xa0--mem=1G\xc2\xa0-t 5\n";
  EXPECT_EQ(with_fixes(spaces, claims_in(spaces)), "#!/bin/bash\n#SBATCH --mem=1G -t 5\n");
}

TEST(SlurmCheckClaims, WriteReferencesAsUris) {
  const auto uri = [](const std::string& file) {
    const auto sarif = to_sarif({{file, claims_in("hostname\n")}}, "1");
    const auto& place = sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    return place["artifactLocation"]["uri"].get<std::string>();
  };
  EXPECT_EQ(uri("a b#\xc3\xa9%41.sh"), "a%20b%23%C3%A9%2541.sh");
  EXPECT_EQ(uri("/jobs/x_1.sh"), "/jobs/x_1.sh");
}

/// The time that this thread computes, which does not grow when other programs run.
double cpu_seconds_of_claims(const std::string& repeated, int times) {
  std::string text = kStart + std::string("hostname\n");
  for (int i = 0; i < times; ++i) text += repeated;
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  const double begin = now();
  claims_in(text);
  return now() - begin;
}

// 100,000 lines took 11 s and more, because each directive was compared with all lines before it.
TEST(SlurmCheckClaims, TakeNoTimeThatGrowsWithTheSquare) {
  for (const std::string repeated : {"#SBATCH --comment=x\n", "cat <<E\n#SBATCH -n2\nE\n"}) {
    const double small_seconds = cpu_seconds_of_claims(repeated, 2000);
    const double large_seconds = cpu_seconds_of_claims(repeated, 64'000);
    EXPECT_LT(large_seconds, 4 * 32 * small_seconds) << repeated;
  }
}

}  // namespace
}  // namespace yoke::slurm::check
