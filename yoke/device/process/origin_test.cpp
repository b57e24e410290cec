#include "yoke/device/process/origin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "yoke/device/json.h"

namespace yoke::device {
namespace {

using namespace std::string_literals;

const std::string kId = "3f2a91c04b7e58d6a1f0937c5be24d8860a7f31e92cd45b8076e1f3a9d2c8b54";

/// Joins words, each ended by a NUL, to an environment or an argument list as /proc has it.
std::string block(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += word + '\0';
  return text;
}

struct Case {
  const char* what;
  std::string cgroup;
  std::vector<std::string> environment;
  std::vector<std::pair<std::string, std::vector<std::string>>> parents;  ///< Name and arguments, the nearest first.
  std::string label;
  bool is_environment_readable = true;
};

const std::string kShim = "/usr/bin/containerd-shim-runc-v2";
const std::pair<std::string, std::vector<std::string>> kBash = {"bash", {"-bash"}};

const std::vector<Case> kCases = {
    {"nothing known", "", {}, {}, ""},
    {"a login", "0::/user.slice/user-1000.slice/session-3.scope\n", {}, {kBash}, "session 3"},
    {"a service", "0::/system.slice/ollama.service\n", {}, {}, "ollama.service"},

    {"docker", "0::/docker/" + kId + "\n", {"HOSTNAME=3f2a91c04b7e"}, {}, "docker 3f2a91"},
    {"docker, by its shim alone",
     "0::/\n",
     {},
     {kBash, {"containerd-shim", {kShim, "-namespace", "moby", "-id", kId}}},
     "docker 3f2a91"},
    {"docker with a parent cgroup",
     "0::/lab/" + kId + "\n",
     {},
     {{"containerd-shim", {kShim, "-namespace", "moby", "-id", kId, "-address", "/run/containerd/containerd.sock"}}},
     "docker 3f2a91"},
    {"a shim without arguments", "0::/\n", {}, {{"containerd-shim", {kShim, "-id"}}}, "containerd"},
    {"podman, named by its monitor",
     "0::/machine.slice/libpod-" + kId + ".scope/container\n",
     {"container=podman"},
     {{"conmon",
       {"/usr/bin/conmon", "--api-version", "1", "-c", kId, "-u", kId, "-n", "trainer", "-r", "/usr/bin/crun"}}},
     "podman trainer"},
    {"podman without cgroups",
     "3:cpuset:/\n",
     {"container=podman"},
     {{"conmon", {"conmon", "-c", kId, "-n", "toy"}}},
     "podman toy"},
    {"another container's monitor",
     "0::/docker/" + kId + "\n",
     {},
     {{"conmon", {"conmon", "-c", "other", "-n", "toy"}}},
     "docker 3f2a91"},
    {"podman, by its variable", "", {"container=podman"}, {}, "podman"},
    {"a variable that anybody may set", "", {"container=\x1b[2J"}, {}, ""},
    {"a pod",
     "0::/kubepods/burstable/pod5759a1ae-36ca-48a8-b20a-b0b5c8a90fb8/" + kId + "\n",
     {"HOSTNAME=trainer-0"},
     {},
     "kubernetes trainer-0"},
    {"somebody else's pod",
     "0::/kubepods/burstable/pod5759a1ae-36ca-48a8-b20a-b0b5c8a90fb8/" + kId + "\n",
     {},
     {},
     "kubernetes 5759a1",
     false},
    {"LXC", "0::/lxc.payload.trainer/init.scope\n", {"container=lxc"}, {}, "lxc trainer"},
    {"apptainer", "", {"APPTAINER_NAME=torch.sif", "SINGULARITY_NAME=torch.sif"}, {}, "apptainer torch.sif"},
    {"singularity", "", {"SINGULARITY_NAME=torch.sif"}, {}, "singularity torch.sif"},
    {"somebody else's apptainer",
     "",
     {},
     {{"starter", {"Apptainer runtime parent: torch.sif"}}},
     "apptainer torch.sif",
     false},
    {"singularity, an older title", "", {}, {{"starter-suid", {"Singularity runtime parent"}}}, "singularity", false},

    {"slurm by cgroup",
     "0::/system.slice/slurmstepd.scope/job_4121/step_0/user/task_0\n",
     {},
     {},
     "slurm 4121.0",
     false},
    {"slurm by variables", "", {"SLURM_JOB_ID=4121", "SLURM_STEP_ID=3"}, {}, "slurm 4121.3"},
    {"slurm, older variables", "", {"SLURM_JOBID=4121"}, {}, "slurm 4121"},
    {"slurm, no job", "", {"SLURM_JOB_ID=-1"}, {}, ""},
    {"slurm by its daemon's title",
     "",
     {},
     {kBash, {"slurmstepd", {"slurmstepd: [4121.batch]"}}},
     "slurm 4121.batch",
     false},
    {"a title that is none", "", {}, {{"x", {"slurmstepd: [x.1]"}}, {"x", {"slurmstepd: [12"}}}, ""},
    {"slurm: variables name the task of an array",
     "3:cpuset:/slurm/uid_1/job_4129/step_batch/task_0\n",
     {"SLURM_JOB_ID=4129", "SLURM_ARRAY_JOB_ID=4121", "SLURM_ARRAY_TASK_ID=7", "SLURM_JOB_NAME=sweep"},
     {},
     "slurm 4121_7.batch"},
    {"slurm: variables of another job",
     "3:cpuset:/slurm/uid_1/job_4129/step_0\n",
     {"SLURM_JOB_ID=17", "SLURM_ARRAY_JOB_ID=17", "SLURM_ARRAY_TASK_ID=7"},
     {},
     "slurm 4129.0"},
    {"slurm and apptainer",
     "3:cpuset:/slurm/uid_1/job_4129/step_0\n",
     {"APPTAINER_NAME=a.sif"},
     {},
     "slurm 4129.0, apptainer a.sif"},
    {"slurm: a session of the submitting host",
     "3:cpuset:/slurm/uid_1/job_4129/step_0\n",
     {"TMUX=/tmp/tmux-1000/default,99,2", "JPY_SESSION_NAME=a.ipynb", "STY=1.x"},
     {},
     "slurm 4129.0"},
    {"slurm: tmux inside of the job",
     "3:cpuset:/slurm/uid_1/job_4129/step_0\n",
     {"TMUX=/tmp/tmux-1000/default,99,2"},
     {kBash, {"tmux: server", {"tmux", "new", "-d"}}},
     "slurm 4129.0, tmux 2"},
    {"slurm's service is not what a job belongs to",
     "1:name=systemd:/system.slice/slurmd.service\n",
     {"SLURM_JOB_ID=5"},
     {},
     "slurm 5"},

    {"tmux", "", {"TMUX=/tmp/tmux-1000/default,4711,2", "TMUX_PANE=%5"}, {}, "tmux 2"},
    {"tmux, a socket with commas", "", {"TMUX=/tmp/a,b,1,12"}, {}, "tmux 12"},
    {"tmux, a variable that is none", "", {"TMUX=2"}, {}, ""},
    {"tmux, half of one", "", {"TMUX=,2"}, {}, ""},
    {"somebody else's tmux", "", {}, {kBash, {"tmux: server", {"tmux"}}}, "tmux", false},
    {"tmux's own server", "", {}, {}, "", false},
    {"screen", "", {"STY=4711.train"}, {}, "screen 4711.train"},
    {"somebody else's screen", "", {}, {{"screen", {"SCREEN", "-S", "train"}}}, "screen", false},

    {"jupyter", "", {"JPY_SESSION_NAME=/home/ada/work/train.ipynb", "JPY_PARENT_PID=99"}, {}, "jupyter train.ipynb"},
    {"jupyter in tmux",
     "",
     {"JPY_SESSION_NAME=train.ipynb", "TMUX=/tmp/tmux-0/default,1,0"},
     {},
     "jupyter train.ipynb"},
    {"an older jupyter", "", {"JPY_PARENT_PID=99"}, {}, "jupyter"},
    {"a kernel's child",
     "",
     {},
     {{"python",
       {"python", "-m", "ipykernel_launcher", "-f",
        "/home/ada/.local/share/jupyter/runtime/kernel-1f0b2c3d-55aa.json"}}},
     "jupyter 1f0b2c3d",
     false},
    {"a kernel of VS Code",
     "",
     {},
     {{"python", {"python", "-m", "ipykernel_launcher", "--f=/run/kernel-v2-8812.json"}}},
     "jupyter v2-8812",
     false},
    {"no kernel", "", {}, {{"vim", {"vim", "kernel-.json", "my-kernel-1.json"}}}, ""},

    {"a rank", "", {"RANK=3", "WORLD_SIZE=8", "TORCHELASTIC_RUN_ID=none"}, {}, "rank 3/8"},
    {"a rank of a job", "", {"SLURM_JOB_ID=12", "RANK=3", "WORLD_SIZE=8"}, {}, "slurm 12, rank 3/8"},
    {"no rank", "", {"RANK=8", "WORLD_SIZE=8"}, {}, ""},
    {"no numbers", "", {"RANK=x", "WORLD_SIZE="}, {}, ""},
    {"the first of two counts, as for getenv", "", {"RANK=1", "RANK=2", "WORLD_SIZE=4"}, {}, "rank 1/4"},
    {"junk", "", {"", "=", "=x", "TMUX", "\xff\xfe=1", "SLURM_JOB_ID=99999999999999999999"}, {}, ""},
};

TEST(ProcessOrigin, FindsWhatAProcessBelongsTo) {
  for (const auto& expected : kCases) {
    SCOPED_TRACE(expected.what);
    const auto environment = block(expected.environment);
    OriginSources sources{.cgroup = expected.cgroup};
    if (expected.is_environment_readable) sources.environment = environment;
    sources.ancestors.push_back({"python", block({"python", "train.py"})});
    for (const auto& [comm, arguments] : expected.parents) sources.ancestors.push_back({comm, block(arguments)});
    EXPECT_EQ(label(find_origin(sources)), expected.label);
  }
}

TEST(ProcessOrigin, KeepsAllThatIsTrue) {
  const auto environment = block({"SLURM_JOB_ID=4129", "SLURM_JOB_NAME=sweep", "RANK=0", "WORLD_SIZE=2",
                                  "TORCHELASTIC_RUN_ID=r17", "SINGULARITY_NAME=a.sif"});
  const auto origin = find_origin({"3:cpuset:/slurm/uid_1/job_4129/step_0\n", environment, {}});
  EXPECT_EQ(origin.slurm, (SlurmJob{.job_id = 4129, .step = "0", .name = "sweep"}));
  EXPECT_EQ(origin.torch_rank, (TorchRank{0, 2, "r17"}));
  EXPECT_EQ(origin.container, (Container{.runtime = "singularity", .name = "a.sif"}));

  const auto in_tmux = block({"TMUX=/tmp/tmux-1000/default,4711,2", "TMUX_PANE=%5"});
  EXPECT_EQ(find_origin({"", in_tmux, {}}).tmux, (Tmux{"2", "%5", "/tmp/tmux-1000/default"}));
}

TEST(ProcessOrigin, ItsOwnArgumentsProveNothingButAKernel) {
  const auto title = block({"slurmstepd: [4121.0]"});
  EXPECT_EQ(find_origin({"", std::nullopt, {{"tmux: server", title}}}), Origin{});
  const auto kernel = block({"python", "-m", "ipykernel_launcher", "-f", "/x/kernel-ab.json"});
  EXPECT_EQ(label(find_origin({"", std::nullopt, {{"python", kernel}}})), "jupyter ab");
}

TEST(ProcessOrigin, SurvivesJson) {
  Origin origin;
  origin.container = Container{"kubernetes", kId, "trainer-0", "5759a1ae-36ca-48a8-b20a-b0b5c8a90fb8", 7};
  origin.slurm = SlurmJob{12, "batch", "sweep", "11_1"};
  origin.tmux = Tmux{"2", "%5", "/tmp/tmux-1000/default"};
  origin.screen = "4711.train";
  origin.jupyter = Jupyter{"a.ipynb", "1f0b"};
  origin.torch_rank = TorchRank{1, 4, "r17"};
  origin.systemd_unit = "x.service";
  origin.login_session = "3";
  for (const auto& each : {origin, Origin{}, Origin{.screen = ""}}) {
    auto json = nlohmann::ordered_json::object();
    write_json(each, json);
    Origin back;
    read_json(nlohmann::ordered_json::parse(json.dump()), back);
    EXPECT_EQ(back, each) << json;
  }
}

// Slurm 26.05 names the cgroups of jobs by SLUIDs. This orphan has no slurmstepd among its ancestors, and no
// environment.
TEST(ProcessOrigin, FindsTheJobOfASluid) {
  const auto root = std::filesystem::temp_directory_path() / ("yoke-sluid-" + std::to_string(getpid()));
  const auto write = [&](const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  };
  const std::string job = "/system.slice/slurmstepd.scope/sEKNKTV3WPV500";
  write("proc/50/stat", "50 (python) S 1 0 0 0 0 0 0 0 0 0 10 5 0 0 20 0 1 0 500 0 7 0\n");
  write("proc/50/cgroup", "0::" + job + "/step_3/user/task_0\n");
  write("proc/50/cmdline", block({"python"}));
  write("proc/49/cmdline", block({"slurmstepd: [4121.extern]"}));
  write("sys/fs/cgroup" + job + "/step_extern/slurm/cgroup.procs", "49\n");
  EXPECT_EQ(label(origin_of_process(50, root / "proc")), "slurm 4121.3");
  std::filesystem::remove_all(root);
}

TEST(ProcessOrigin, ReadsTheFolderOfAProcess) {
  const auto proc = std::filesystem::temp_directory_path() / ("yoke-origin-" + std::to_string(getpid()));
  const auto write = [&](const std::string& file, const std::string& text) {
    std::filesystem::create_directories((proc / file).parent_path());
    std::ofstream(proc / file) << text;
  };
  const auto stat = [](int pid, const std::string& comm, int parent) {
    return std::to_string(pid) + " (" + comm + ") S " + std::to_string(parent) +
           " 0 0 0 0 0 0 0 0 0 10 5 0 0 20 0 1 0 500 0 7 0\n";
  };
  write("40/stat", stat(40, "python", 30));
  write("40/cgroup", "0::/docker/" + kId + "\n");
  write("40/cmdline", block({"python"}));
  write("40/environ", block({"RANK=0", "WORLD_SIZE=2"}));
  write("40/status", "Name:\tpython\nNStgid:\t40\t9\t7\nNSpid:\t40\t9\t7\nNSpgid:\t40\t9\t7\n");
  write("30/stat", stat(30, "sh", 20));
  write("30/cmdline", block({"sh"}));
  write("20/stat", stat(20, "tmux: server", 30));  // the parents form a cycle
  write("20/cmdline", block({"tmux"}));
  const auto origin = origin_of_process(40, proc);
  EXPECT_EQ(label(origin), "docker 3f2a91, tmux, rank 0/2");
  ASSERT_TRUE(origin.container);
  EXPECT_EQ(origin.container->inner_pid, 7);
  EXPECT_EQ(origin_of_process(41, proc), Origin{});
  EXPECT_EQ(origin_of_process(30, proc).tmux, Tmux{});
  std::filesystem::remove_all(proc);
}

TEST(ProcessOrigin, ReadsARealProcess) {
  std::string program = "sleep", seconds = "60", tmux = "TMUX=/tmp/s,1,17", rank = "RANK=1", world = "WORLD_SIZE=2";
  char* const arguments[] = {program.data(), seconds.data(), nullptr};
  char* const environment[] = {tmux.data(), rank.data(), world.data(), nullptr};
  pid_t pid = 0;
  ASSERT_EQ(posix_spawnp(&pid, "sleep", nullptr, nullptr, arguments, environment), 0);
  auto origin = origin_of_process(pid);
  for (int i = 0; i < 20'000 && !origin.torch_rank; ++i) {  // posix_spawn returns before /proc shows the environment
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    origin = origin_of_process(pid);
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  EXPECT_EQ(origin.torch_rank, (TorchRank{1, 2, ""}));
  EXPECT_EQ(origin_of_process(pid), Origin{}) << "it is gone";
  EXPECT_EQ(origin_of_process(-1), Origin{});
}

}  // namespace
}  // namespace yoke::device
