#include "yoke/slurm/script/plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/slurm/site/find.h"

namespace yoke::slurm {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Site site_of(const std::string& name) { return find_site(std::string(YOKE_SITES) + "/" + name + ".toml", {}).site; }

Request training(int64_t num_nodes = 2) {
  Request request{.argv = {"python", "train.py"}, .num_nodes = num_nodes};
  request.time = "1h";
  request.account = "project_1";
  return request;
}

std::string script_of(const Request& request, const Site& site, std::optional<Version> version = {}) {
  return to_script(plan_script(request, site, version));
}

std::string refusal(const Request& request, const Site& site) {
  return test::error_of([&] { plan_script(request, site, {}); }).what();
}

/// The words of the srun that starts the ranks.
std::vector<std::string> step_of(const Request& request, const Site& site, std::optional<Version> version = {}) {
  return plan_script(request, site, version).step;
}

// Each row is a pitfall of LUMI-G: what the script must have, or must not have ("!"), and where it was published.
TEST(SlurmScript, AvoidsThePublishedPitfallsOfLumi) {
  struct Row {
    std::string text, source;
  };
  const std::vector<Row> rows = {
      {"#SBATCH --partition=standard-g\n", "lumig-job.md: masks apply to standard-g, whose jobs have whole nodes"},
      {"#SBATCH --gpus-per-node=8", "lumig-job.md, AI guide chapter 5: GPUs by the node"},
      {"#SBATCH --ntasks-per-node=8", "lumig-job.md: one rank for each GCD"},
      {"#SBATCH --cpus-per-task=7\n", "lumig-job.md: 56 usable cores; 64 cores are never scheduled"},
      {"#SBATCH --account=project_1\n", "lumig-job.md: --account for billing"},
      {"#SBATCH --mem-per-gpu=60G\n", "AI guide, run_ddp_srun_4.sh"},
      {"--cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,"
       "0xfe0000000000",
       "distribution-binding.md and AI guide: rank i near GCD i"},
      {"!--cpus-per-task=7 --cpu", "mask_cpu and -c of srun contradict each other"},
      {"unset SLURM_CPUS_PER_TASK", "Slurm 23.11 changelog: srun inherits it again, and it implies --exact"},
      {"!--gpus-per-task", "each task has a GPU cgroup of its own, so GPUs of a node do not reach each other"},
      {"!--ntasks-per-gpu", "the same"},
      {"!--gpu-bind", "closest does not work well, per the training materials of 2026"},
      {"!--gres=", "Slurm 26.05 refuses --gres=gpu with --gpus-per-node"},
      {"!--cpus-per-gpu", "ignored by steps until 23.11, hangs in the queue until 24.11"},
      {"!ROCR_VISIBLE_DEVICES", "ranks take LOCAL_RANK; hidden GPUs cannot be reached by others"},
      {"export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID", "AI guide: these exist inside the step alone"},
      {"export NCCL_SOCKET_IFNAME=\"hsn0,hsn1,hsn2,hsn3\"", "RCCL tries a network that it cannot use otherwise"},
      {"export NCCL_NET_GDR_LEVEL=\"3\"", "pytorch.md"},
      {"export CXI_FORK_SAFE=\"1\"", "pytorch.md"},
      {"export CXI_FORK_SAFE_HP=\"1\"", "pytorch.md"},
      {"export FI_CXI_DISABLE_CQ_HUGETLB=\"1\"", "pytorch.md"},
      {"export MIOPEN_USER_DB_PATH=\"/tmp/$USER-$SLURM_JOB_ID/", "pytorch.md: MIOpen's caches in /tmp, by job"},
      {"export MIOPEN_CUSTOM_CACHE_DIR=\"/tmp/$USER-$SLURM_JOB_ID/", "pytorch.md"},
      {"mkdir -p -m 700 \"/tmp/$USER-$SLURM_JOB_ID\"\n", "/tmp is everybody's"},
      {"mkdir -p \"$MIOPEN_USER_DB_PATH\"", "mktemp in the batch script makes a folder on the first node alone"},
      {"export TORCH_HOME=\"/scratch/$SLURM_JOB_ACCOUNT/$USER/torch_home\"", "AI guide: not in the home"},
      {"scontrol show hostnames \"$SLURM_JOB_NODELIST\"", "AI guide: MASTER_ADDR"},
      {"MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))", "AI guide: a port that follows from the job"},
      {"!#SBATCH --exclusive", "standard-g gives whole nodes"},
      {"!module", "no container, no modules of containers"},
  };
  const auto script = script_of(training(4), site_of("lumi-g"));
  for (const auto& [text, source] : rows) {
    if (text[0] == '!') {
      EXPECT_THAT(script, Not(HasSubstr(text.substr(1)))) << source;
    } else {
      EXPECT_THAT(script, HasSubstr(text)) << source;
    }
  }
  auto small = training(1);
  small.partition = "small-g";
  EXPECT_THAT(script_of(small, site_of("lumi-g")), HasSubstr("#SBATCH --exclusive"));  // distribution-binding.md
  small.gpus_per_node = 2;
  EXPECT_THAT(script_of(small, site_of("lumi-g")), AllOf(Not(HasSubstr("mask_cpu")), Not(HasSubstr("--exclusive"))));
  auto contained = training(1);
  contained.container = "torch.sif";
  contained.overlay = "env.sqsh";
  EXPECT_THAT(script_of(contained, site_of("lumi-g")),
              AllOf(StartsWith("#!/bin/bash -l\n"),
                    HasSubstr("module purge\nmodule use /appl/local/laifs/modules\n"
                              "module load lumi-aif-singularity-bindings\n"),
                    HasSubstr("command=(singularity run -B env.sqsh:/user-software:image-src=/ torch.sif python "
                              "train.py)")));
}

// CPUs of steps by version: srun forgets the job's --cpus-per-task from 22.05 to 23.02, and takes it again from 23.11.
// On its own command line it is right in all of them.
TEST(SlurmScript, GivesCpusToStepsInEachVersion) {
  Site site{.name = "x", .summary = "", .sources = {}, .checked = ""};
  site.num_gpus = 4;
  site.vendor = "nvidia";
  site.cpus_per_gpu = 8;
  for (const auto& version : {Version{22, 5, 0}, Version{23, 2, 0}, Version{23, 11, 0}, Version{26, 5, 0}}) {
    EXPECT_THAT(step_of(training(), site, version), Contains("--cpus-per-task=8")) << to_text(version);
    EXPECT_THAT(script_of(training(), site, version), Not(HasSubstr("SRUN_CPUS_PER_TASK"))) << to_text(version);
  }
  const auto lumi = site_of("lumi-g");
  EXPECT_TRUE(plan_script(training(), lumi, Version{23, 2, 0}).unset.empty());
  EXPECT_EQ(plan_script(training(), lumi, Version{23, 11, 0}).unset.size(), 2U);
  EXPECT_EQ(plan_script(training(), lumi, {}).unset.size(), 2U);
}

TEST(SlurmScript, ChoosesTheLauncher) {
  const auto site = site_of("juwels-booster");
  auto request = training();
  auto plan = plan_script(request, site, {});
  EXPECT_EQ(plan.launcher, Launcher::kSrun);
  EXPECT_THAT(plan.step, Contains(HasSubstr("mask_cpu:0xfc0000000000fc0000,0xfc0000000000fc0,")));
  EXPECT_THAT(to_script(plan), HasSubstr("| sed -n 1p)i  #"));  // names in JSC's fast network

  request.argv = {"torchrun", "train.py"};
  plan = plan_script(request, site, {});
  EXPECT_EQ(plan.launcher, Launcher::kItself);
  EXPECT_THAT(to_script(plan),
              AllOf(HasSubstr("#SBATCH --ntasks-per-node=1"), HasSubstr("#SBATCH --cpus-per-task=96"),
                    HasSubstr("export PET_NNODES=\"$SLURM_NNODES\""), HasSubstr("PET_NPROC_PER_NODE=4"),
                    HasSubstr("export PET_NODE_RANK=$SLURM_NODEID"), HasSubstr("--cpu-bind=none"),
                    HasSubstr("scancel --signal=TERM \"$SLURM_JOB_ID\" "), Not(HasSubstr("kill -")),
                    Not(HasSubstr("export RANK="))));
  request.argv = {"python3", "-u", "train.py"};
  request.launcher = Launcher::kYoke;
  plan = plan_script(request, site, {});
  EXPECT_EQ(plan.command, (std::vector<std::string>{"yoke", "run", "-n", "4", "--", "python3", "-u", "train.py"}));
  EXPECT_THAT(to_script(plan), AllOf(HasSubstr("kill -USR1"), HasSubstr("\"${step[@]}\" \"${command[@]}\" &")));
  request.argv = {"yoke", "run", "-n", "gpu", "./train"};
  EXPECT_THAT(refusal(request, site), HasSubstr("starts ranks itself"));
  request.launcher = Launcher::kAuto;
  EXPECT_EQ(plan_script(request, site, {}).command, request.argv);
}

// A rank that has a mask must not start more threads than the mask has CPUs.
TEST(SlurmScript, CountsTheCpusOfMasks) {
  const std::map<std::string, int64_t> rows = {{"lumi-g", 7},      {"frontier", 7},    {"juwels-booster", 12},
                                               {"perlmutter", 32}, {"alps-gh200", 72}, {"dgx-a100", 16}};
  auto request = training();
  request.argv.emplace_back("{cpus}");
  for (const auto& [name, cpus] : rows) {
    auto site = site_of(name);
    const auto plan = plan_script(request, site, {});
    ASSERT_THAT(plan.step, Contains(HasSubstr("mask_cpu"))) << name;
    EXPECT_THAT(plan.exports, Contains(Line{fmt::format("OMP_NUM_THREADS={}", cpus), "the CPUs of a rank"})) << name;
    EXPECT_EQ(plan.command.back(), std::to_string(cpus)) << name;
    site.cpus_per_gpu.reset();
    EXPECT_EQ(plan_script(request, site, {}).command.back(), std::to_string(cpus)) << name;
  }
  request.cpus_per_rank = 3;
  EXPECT_EQ(plan_script(request, site_of("dgx-a100"), {}).command.back(), "3");
  request.cpus_per_rank.reset();
  request.argv = {"torchrun", "train.py", "{cpus}"};
  EXPECT_EQ(plan_script(request, site_of("dgx-a100"), {}).command.back(), "32") << "torchrun does not bind its ranks";
}

// A site's memory for each GPU yields to the user's; Slurm takes one of these options.
TEST(SlurmScript, TakesOneOptionOfMemory) {
  auto request = training();
  request.options = {"--mem-per-cpu=4G"};
  EXPECT_THAT(script_of(request, site_of("lumi-g")),
              AllOf(HasSubstr("#SBATCH --mem-per-cpu=4G\n"), Not(HasSubstr("--mem-per-gpu"))));
  request.memory = "100G";
  EXPECT_THAT(refusal(request, site_of("lumi-g")), HasSubstr("Slurm takes one of them"));
  EXPECT_THAT(script_of(training(), site_of("dgx-a100")),
              AllOf(HasSubstr("#SBATCH --exclusive"), HasSubstr("#SBATCH --mem=0")));
}

TEST(SlurmScript, NamesTheJobAfterTheProgram) {
  Site site{.name = "x", .summary = "", .sources = {}, .checked = ""};
  const std::map<std::vector<std::string>, std::string> rows = {
      {{"python", "-u", "dir/train.py", "--x"}, "train"},
      {{"./my-program"}, "my-program"},
      {{"yoke", "train", "fashion-mnist"}, "fashion-mnist"},
      {{"/a b/c d"}, "cd"},
      {{"bash", "-c", "x"}, "bash"},
  };
  for (const auto& [argv, name] : rows) {
    Request request{.argv = argv};
    EXPECT_THAT(script_of(request, site), HasSubstr("#SBATCH --job-name=" + name + "\n"));
  }
}

TEST(SlurmScript, RefusesWhatCannotRun) {
  const auto lumi = site_of("lumi-g");
  struct Row {
    std::function<void(Request&)> change;
    std::string expected;
  };
  const std::vector<Row> rows = {
      {[](Request& r) { r.argv.clear(); }, "give a program"},
      {[](Request& r) {
         r.argv = {"srun", "x"};
       },
       "give the program itself"},
      {[](Request& r) { r.gpus_per_node = 9; }, "a node of lumi-g has 8 GPUs"},
      {[](Request& r) { r.cpus_per_rank = 8; }, "it would never run; give --cpus-per-rank 7"},
      {[](Request& r) { r.account.clear(); }, "give --account"},
      {[](Request& r) { r.partition = "a b"; }, "cannot stand in a line of #SBATCH"},
      {[](Request& r) { r.job_name = "a\n#SBATCH"; }, "cannot stand in a line of #SBATCH"},
      {[](Request& r) { r.options = {"--cpus-per-gpu=7"}; }, "use --cpus-per-rank"},
      {[](Request& r) { r.options = {"--gpus-per-task=1"}; }, "could not reach each other"},
      {[](Request& r) { r.options = {"-c4"}; }, "give a long option"},
      {[](Request& r) { r.options = {"--array=0-3"}; }, "use yoke's --array"},
      {[](Request& r) { r.options = {"--part=x"}; }, "use yoke's --partition"},
      {[](Request& r) { r.options = {"--tasks-per-node=3"}; }, "use --ranks-per-node"},
      {[](Request& r) { r.options = {"--mem=3G"}; }, "use yoke's --mem"},
      {[](Request& r) { r.options = {"--no-requeue"}; }, "use yoke's --requeue 0"},
      {[](Request& r) { r.overlay = "x.sqsh"; }, "give --container"},
      {[](Request& r) { r.time = "soon"; }, "--time soon: give a length"},
      {[](Request& r) {
         r.time = "5m";
         r.signal_seconds = 270;
       },
       "--stop-before 270: the job's time is 300 s"},
      {[](Request& r) { r.modules = {"a; id"}; }, "give the name of a module"},
  };
  for (const auto& [change, expected] : rows) {
    auto request = training();
    change(request);
    EXPECT_THAT(refusal(request, lumi), HasSubstr(expected));
  }
  EXPECT_THAT(refusal(training(), site_of("nvidia")), HasSubstr("give --gpus-per-node"));
}

// On nodes that have slices of MIG too, a number alone may be slices.
TEST(SlurmScript, AsksForWholeGpusByTheirType) {
  auto site = site_of("lumi-g");
  EXPECT_THAT(script_of(training(), site), HasSubstr("#SBATCH --gpus-per-node=8"));
  site.gpu_type = "nvidia_b200";
  EXPECT_THAT(script_of(training(), site), HasSubstr("#SBATCH --gpus-per-node=nvidia_b200:8"));
}

// Slurm may send the signal 30 s too early, which must not be at the job's start.
TEST(SlurmScript, TellsAShortJobToStopAfterItHasBegun) {
  auto request = training();
  for (const auto& [time, expected] : std::map<std::string, std::string>{{"1m", "@15 "},
                                                                         {"0:20", "@15 "},
                                                                         {"3", "@75 "},
                                                                         {"0:02:00", "@45 "},
                                                                         {"5m", "@120 "},
                                                                         {"0", "@120 "},
                                                                         {"2h", "@120 "},
                                                                         {"1-0", "@120 "},
                                                                         {"UNLIMITED", "@120 "}}) {
    request.time = time;
    const auto script = script_of(request, site_of("lumi-g"));
    EXPECT_THAT(script, HasSubstr("--signal=B:USR1" + expected)) << time;
    EXPECT_EQ(script.find("s before the end: the usual 120 s") != script.npos, expected != "@120 ") << time;
  }
  request.time = "1m";
  request.signal_seconds = 29;
  EXPECT_THAT(script_of(request, site_of("lumi-g")), HasSubstr("@29 "));
  request.signal_seconds = 0;
  EXPECT_THAT(script_of(request, site_of("lumi-g")), Not(HasSubstr("--signal")));
}

TEST(SlurmScript, WarnsOfMisspeltPlaceholders) {
  auto request = training();
  request.argv = {"./train", "--workers={cpu}", "{NUM_GPUS}", "${cpu}", "{print $1}", "{cpus}", "{output}"};
  const auto warnings = plan_script(request, site_of("lumi-g"), std::nullopt).warnings;
  EXPECT_THAT(warnings, AllOf(Contains(HasSubstr("{cpu} stays as it is; {cpus} is replaced")),
                              Contains(HasSubstr("{NUM_GPUS} stays as it is; {gpus} is replaced"))));
  for (const auto& one : warnings) EXPECT_THAT(one, Not(testing::ContainsRegex("print|output|[$]"))) << one;
}

TEST(SlurmScript, WritesTimesInSlurmsForm) {
  const std::map<std::string, std::string> rows = {
      {"30m", "0:30:00"},     {"2h", "2:00:00"},    {"1d12h", "1-12:00:00"},
      {"90s", "0:02:00"},     {"1d", "1-00:00:00"}, {"30", "30"},
      {"1:00:00", "1:00:00"}, {"1-12", "1-12"},     {"UNLIMITED", "UNLIMITED"}};
  for (const auto& [text, expected] : rows) EXPECT_EQ(slurm_time(text), expected);
  for (const auto* text : {"", "x", "1:2:3:4", "-1", "1h:2"}) {
    EXPECT_EQ(test::error_of([&] { slurm_time(text); }).code(), ErrorCode::kInvalidArgument) << text;
  }
}

TEST(SlurmScript, QuotesWords) {
  EXPECT_EQ(shell_word("a-b=/c:d,e"), "a-b=/c:d,e");
  EXPECT_EQ(shell_word("42_[1-3]"), "'42_[1-3]'");
  EXPECT_EQ(shell_word("=ls"), "'=ls'");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shell_word(""), "''");
  auto request = training(1);
  request.argv = {"python", "-c", "print('$(id)')", "--workers={cpus}"};
  EXPECT_THAT(script_of(request, site_of("lumi-g")),
              HasSubstr(R"(command=(python -c 'print('\''$(id)'\'')' --workers=7))"));
}

// Anybody may have made a folder or a link of the cache's name in /tmp.
TEST(SlurmScript, WritesCachesIntoItsOwnFolderAlone) {
  test::TemporaryFolder folder;
  Site site{.name = "x", .summary = "", .sources = {}, .checked = ""};
  site.cache_folder = folder.path();
  site.cache_variables = {"MIOPEN_USER_DB_PATH"};
  auto script = script_of(training(1), site);
  const auto begin = script.find("bash -c '") + 9;
  const auto rank = script.substr(begin, script.find("' rank ", begin) - begin);
  const auto cache = folder.path("u-7");
  const auto run = [&] {
    return test::run({.argv = {"bash", "-c", rank, "rank", "echo", "started"},
                      .environment = {{"USER", "u"}, {"SLURM_JOB_ID", "7"}, {"MIOPEN_USER_DB_PATH", cache + "/db"}}});
  };
  const auto started = run();
  EXPECT_EQ(started.out, "started\n") << started.err;
  EXPECT_EQ(std::filesystem::status(cache).permissions(), std::filesystem::perms::owner_all);
  EXPECT_EQ(run().exit_code, 0) << "another rank of the node, or the job's next start";
  std::filesystem::rename(cache, folder.path("elsewhere"));
  std::filesystem::create_symlink(folder.path("elsewhere"), cache);
  const auto refused = run();
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.err, HasSubstr(cache + " on "));
  if (geteuid() == 0) {
    std::filesystem::remove(cache);
    std::filesystem::create_directory(cache);
    ASSERT_EQ(chown(cache.c_str(), 7001, 7001), 0);
    EXPECT_EQ(run().exit_code, 1);
  }
}

// Every script that the table of sites and requests yields is accepted by bash -n.
TEST(SlurmScript, IsValidForBash) {
  test::TemporaryFolder folder;
  int count = 0;
  for (const auto* name :
       {"lumi-g", "frontier", "juwels-booster", "perlmutter", "alps-gh200", "dgx-a100", "nvidia", "amd"}) {
    for (const auto& argv : std::vector<std::vector<std::string>>{
             {"python", "train.py", "it's"}, {"torchrun", "train.py"}, {"yoke", "run", "-n", "gpu", "./train"}}) {
      for (const int64_t requeues : {0, 3}) {
        auto request = training(1 + count % 2);
        request.argv = argv;
        request.gpus_per_node = 4;
        request.num_requeues = requeues;
        request.variables = {{"A", "x 'y' $z"}};
        request.array = count % 3 == 0 ? "0-3" : "";
        const auto file = folder.path(std::to_string(count++) + ".sh");
        folder.write(std::to_string(count - 1) + ".sh", script_of(request, site_of(name)));
        const auto result = test::run({.argv = {"bash", "-n", file}});
        EXPECT_EQ(result.exit_code, 0) << result.err << test::slurp(file);
      }
    }
  }
}

}  // namespace
}  // namespace yoke::slurm
