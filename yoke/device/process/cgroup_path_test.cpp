#include "yoke/device/process/detail/cgroup_path.h"

#include <gtest/gtest.h>

#include <vector>

namespace yoke::device {
namespace {

// Two made-up container ids, 64 digits each, and two pods' UIDs.
#define ID1 "3f2a91c04b7e58d6a1f0937c5be24d8860a7f31e92cd45b8076e1f3a9d2c8b54"
#define ID2 "c8d05e7719ab3f4260fe85d1b79c3a0e4d62f815a03b9c7e5f1d84a6207be93c"
#define POD1 "5759a1ae-36ca-48a8-b20a-b0b5c8a90fb8"
#define POD1_SYSTEMD "5759a1ae_36ca_48a8_b20a_b0b5c8a90fb8"
#define POD2 "9b2ec4e0a1d3f57608c94b6d2a7e31f5"  // from a static pod

struct PathCase {
  const char* what;
  const char* cgroup;
  const char* runtime = "";
  const char* id = "";
  const char* pod_uid = "";
  int64_t job = 0;
  const char* step = "";
  const char* unit = "";
  const char* session = "";
  bool is_tmux = false;
};

const std::vector<PathCase> kPathCases = {
    {"nothing", ""},
    {"no container, version 2", "0::/\n"},
    {"a machine without systemd, hybrid", "9:name=systemd:/\n4:memory:/\n3:cpuset:/\n0::/\n"},
    {"another cgroup namespace", "0::/../../..\n"},
    {"lines that are none", "hello\n::\n1\n:\n5:memory\n"},

    // Docker
    {"docker, version 1, cgroupfs",
     "12:pids:/docker/" ID1 "\n11:memory:/docker/" ID1 "\n1:name=systemd:/docker/" ID1 "\n", "docker", ID1},
    {"docker, version 2, cgroupfs", "0::/docker/" ID1 "\n", "docker", ID1},
    {"docker, version 1, systemd",
     "10:devices:/system.slice/docker-" ID1 ".scope\n1:name=systemd:/system.slice/docker-" ID1 ".scope\n", "docker",
     ID1},
    {"docker, version 2, systemd", "0::/system.slice/docker-" ID1 ".scope\n", "docker", ID1},
    {"docker, hybrid: only version 1 knows it",
     "11:freezer:/docker/" ID1 "\n10:rdma:/\n1:name=systemd:/docker/" ID1 "\n0::/system.slice/containerd.service\n",
     "docker", ID1},
    {"docker, rootless", "0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-" ID1 ".scope\n", "docker",
     ID1},
    {"docker --cgroup-parent=/lab, cgroupfs", "0::/lab/" ID1 "\n", "container", ID1},
    {"docker --cgroup-parent=lab.slice", "0::/lab.slice/docker-" ID1 ".scope\n", "docker", ID1},
    {"docker of old Debian", "4:memory:/" ID1 "\n", "container", ID1},
    {"docker in docker", "5:memory:/docker/" ID1 "/docker/" ID2 "\n", "docker", ID2},
    {"systemd in docker", "0::/docker/" ID1 "/init.scope\n", "docker", ID1},
    {"docker in LXC", "0::/lxc.payload.gpu1/system.slice/docker-" ID1 ".scope\n", "docker", ID1},
    {"docker in snap", "0::/system.slice/snap.docker.dockerd.service\n", "", "", "", 0, "",
     "snap.docker.dockerd.service"},
    {"Amazon ECS", "9:perf_event:/ecs/my-cluster/1f5b7c0d2e3a4b6c8d9e0f1a2b3c4d5e/" ID1 "\n", "container", ID1},
    {"dockerd itself", "0::/system.slice/docker.service\n", "", "", "", 0, "", "docker.service"},
    {"too short for an id", "0::/docker/3f2a91c04b7e\n"},
    {"too long for an id", "0::/docker/" ID1 "0\n"},
    {"capitals are no id",
     "0::/system.slice/docker-3F2A91C04B7E58D6A1F0937C5BE24D8860A7F31E92CD45B8076E1F3A9D2C8B54.scope\n", "", "", "", 0,
     "", "docker-3F2A91C04B7E58D6A1F0937C5BE24D8860A7F31E92CD45B8076E1F3A9D2C8B54.scope"},

    // Podman
    {"podman, version 2, systemd", "0::/machine.slice/libpod-" ID1 ".scope\n", "podman", ID1},
    {"podman, crun's sub-cgroup", "0::/machine.slice/libpod-" ID1 ".scope/container\n", "podman", ID1},
    {"podman, rootless", "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID1 ".scope/container\n",
     "podman", ID1},
    {"podman, cgroupfs, version 1", "4:memory:/libpod_parent/libpod-" ID1 "\n3:cpuset:/libpod_parent/libpod-" ID1 "\n",
     "podman", ID1},
    {"podman in a pod", "0::/machine.slice/machine-libpod_pod_" ID2 ".slice/libpod-" ID1 ".scope\n", "podman", ID1},
    {"podman --cgroups=split, as quadlet", "0::/system.slice/llm.service/libpod-payload-" ID1 "\n", "podman", ID1},
    {"podman's monitor", "0::/machine.slice/libpod-conmon-" ID1 ".scope\n", "", "", "", 0, "",
     "libpod-conmon-" ID1 ".scope"},
    {"podman in docker", "0::/docker/" ID1 "/libpod_parent/libpod-" ID2 "\n", "podman", ID2},

    // Kubernetes
    {"kubernetes, cgroupfs", "11:cpu:/kubepods/besteffort/pod" POD1 "/" ID1 "\n", "kubernetes", ID1, POD1},
    {"kubernetes, guaranteed", "11:cpu:/kubepods/pod" POD1 "/" ID1 "\n", "kubernetes", ID1, POD1},
    {"kubernetes, systemd, containerd",
     "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" POD1_SYSTEMD ".slice/cri-containerd-" ID1
     ".scope\n",
     "kubernetes", ID1, POD1},
    {"kubernetes, systemd, guaranteed",
     "0::/kubepods.slice/kubepods-pod" POD1_SYSTEMD ".slice/cri-containerd-" ID1 ".scope\n", "kubernetes", ID1, POD1},
    {"kubernetes, systemd, cri-o",
     "12:cpuset:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" POD1_SYSTEMD ".slice/crio-" ID1
     ".scope\n",
     "kubernetes", ID1, POD1},
    {"kubernetes, cri-o, cgroupfs", "5:memory:/kubepods/burstable/pod" POD1 "/crio-" ID1 "\n", "kubernetes", ID1, POD1},
    {"cri-o's monitor",
     "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" POD1_SYSTEMD ".slice/crio-conmon-" ID1
     ".scope\n",
     "", "", "", 0, "", "crio-conmon-" ID1 ".scope"},
    {"kubernetes, systemd, docker",
     "1:name=systemd:/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" POD1_SYSTEMD
     ".slice/docker-" ID1 ".scope\n",
     "kubernetes", ID1, POD1},
    {"kubernetes, the CRI's names with colons",
     "1:name=systemd:/system.slice/containerd.service/kubepods-burstable-pod" POD1_SYSTEMD ".slice:cri-containerd:" ID1
     "\n",
     "kubernetes", ID1, POD1},
    {"kubernetes, colons, version 2", "0::/kubepods-besteffort-pod" POD1_SYSTEMD ".slice:cri-containerd:" ID1 "\n",
     "kubernetes", ID1, POD1},
    {"a static pod", "0::/kubepods/burstable/pod" POD2 "/" ID1 "\n", "kubernetes", ID1, POD2},
    {"a static pod, systemd",
     "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" POD2 ".slice/crio-" ID1 ".scope\n",
     "kubernetes", ID1, POD2},
    {"kind: kubernetes in docker",
     "0::/docker/" ID2 "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
     "kubelet-kubepods-besteffort-pod" POD1_SYSTEMD ".slice/cri-containerd-" ID1 ".scope\n",
     "kubernetes", ID1, POD1},
    {"kind, cgroupfs", "8:memory:/docker/" ID2 "/kubelet/kubepods/besteffort/pod" POD1 "/" ID1 "\n", "kubernetes", ID1,
     POD1},
    {"k3s", "0::/k8s.io/" ID1 "\n", "container", ID1},
    {"kubelet itself", "0::/system.slice/kubelet.service\n", "", "", "", 0, "", "kubelet.service"},
    {"nerdctl", "0::/system.slice/nerdctl-" ID1 ".scope\n", "containerd", ID1},
    {"a folder that begins like a pod", "0::/podman/podcasts\n"},

    // LXC, machines
    {"LXC before 4", "5:memory:/lxc/trainer\n", "lxc", "trainer"},
    {"LXC 3.1", "5:memory:/lxc.payload/trainer\n", "lxc", "trainer"},
    {"LXC 4", "0::/lxc.payload.trainer/system.slice/ssh.service\n", "lxc", "trainer"},
    {"LXC's monitor", "0::/lxc.monitor.trainer\n"},
    {"Proxmox", "0::/lxc/101/ns/user.slice/user-0.slice/session-5.scope\n", "lxc", "101", "", 0, "", "", "5"},
    {"systemd-nspawn", "0::/machine.slice/machine-debian\\x2dtest.scope/payload/system.slice/cron.service\n", "machine",
     "debian-test"},
    {"libvirt", "0::/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/libvirt/emulator\n", "machine", "qemu-1-vm"},

    // Slurm
    {"slurm, version 1",
     "11:freezer:/slurm/uid_1000/job_4121/step_0\n8:memory:/slurm/uid_1000/job_4121/step_0/task_0\n4:cpuset:/"
     "slurm/uid_1000/job_4121/step_0\n",
     "", "", "", 4121, "0"},
    {"slurm, version 1, the batch script", "3:cpuset:/slurm/uid_1000/job_4121/step_batch/task_0\n", "", "", "", 4121,
     "batch"},
    {"slurm, version 1, older numbers", "3:cpuset:/slurm/uid_1000/job_4121/step_4294967294\n", "", "", "", 4121,
     "batch"},
    {"slurm, version 1, several slurmd", "10:devices:/slurm_n3/uid_1000/job_280678/step_interactive/task_0\n", "", "",
     "", 280678, "interactive"},
    {"slurm, version 1: one hierarchy stops at the job",
     "9:devices:/slurm/uid_1000/job_7\n8:memory:/slurm/uid_1000/job_7/step_extern\n1:name=systemd:/system.slice/"
     "slurmd.service\n",
     "", "", "", 7, "extern", "slurmd.service"},
    {"slurm, version 2", "0::/system.slice/slurmstepd.scope/job_4121/step_0/user/task_0\n", "", "", "", 4121, "0",
     "slurmstepd.scope"},
    {"slurm, version 2, the batch script", "0::/system.slice/slurmstepd.scope/job_4121/step_batch/user/task_special\n",
     "", "", "", 4121, "batch", "slurmstepd.scope"},
    {"slurm, version 2, several slurmd", "0::/system.slice/n1_slurmstepd.scope/job_42/step_extern/user/task_special\n",
     "", "", "", 42, "extern", "n1_slurmstepd.scope"},
    {"slurm 26.05, by SLUID: the job is not in the path",
     "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0\n", "", "", "", 0, "", "slurmstepd.scope"},
    {"slurm's own processes", "0::/system.slice/slurmstepd.scope/system\n", "", "", "", 0, "", "slurmstepd.scope"},
    {"a job that is none of Slurm's", "0::/batch/job_4121/step_0\n"},
    {"a job without a number", "0::/system.slice/slurmstepd.scope/job_x/step_0\n", "", "", "", 0, "",
     "slurmstepd.scope"},
    {"a job of a number too large", "3:cpuset:/slurm/uid_1/job_99999999999999999999/step_0\n"},
    {"docker in slurm", "0::/system.slice/slurmstepd.scope/job_12/step_0/user/docker-" ID1 ".scope\n", "docker", ID1,
     "", 12, "0"},

    // systemd
    {"a service", "0::/system.slice/ollama.service\n", "", "", "", 0, "", "ollama.service"},
    {"an instance of a service, version 1",
     "2:cpu:/\n1:name=systemd:/system.slice/system-jupyter.slice/jupyter@ada.service\n", "", "", "", 0, "",
     "jupyter@ada.service"},
    {"escaped", "0::/system.slice/nvidia\\x2dpersistenced.service\n", "", "", "", 0, "", "nvidia-persistenced.service"},
    {"a login", "0::/user.slice/user-1000.slice/session-3.scope\n", "", "", "", 0, "", "", "3"},
    {"a login, hybrid", "1:name=systemd:/user.slice/user-1000.slice/session-c2.scope\n0::/user.slice\n", "", "", "", 0,
     "", "", "c2"},
    {"a user's service", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/train.service\n", "", "", "", 0,
     "", "train.service"},
    {"a user's manager", "0::/user.slice/user-1000.slice/user@1000.service/init.scope\n"},
    {"systemd-run --scope", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-rb2.scope\n", "", "", "", 0,
     "", "run-rb2.scope"},
    {"a terminal's tab",
     "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.gnome.Terminal.slice/vte-spawn-0b5c.scope\n"},
    {"tmux on a desktop", "0::/user.slice/user-1000.slice/user@1000.service/tmux-spawn-2b5f.scope\n", "", "", "", 0, "",
     "", "", true},
    {"systemd itself", "0::/init.scope\n"},
    {"bytes that are no text", "0::/system.slice/\xff\xfe\x1b[31m.service\n", "", "", "", 0, "",
     "\xff\xfe\x1b[31m.service"},
};

TEST(CgroupPath, TellsWhatTheNamesSay) {
  for (const auto& expected : kPathCases) {
    SCOPED_TRACE(expected.what);
    const auto origin = parse_cgroup(expected.cgroup);
    const auto container = origin.container.value_or(Container{});
    EXPECT_EQ(container.runtime, expected.runtime);
    EXPECT_EQ(container.id, expected.id);
    EXPECT_EQ(container.pod_uid, expected.pod_uid);
    const auto slurm = origin.slurm.value_or(SlurmJob{});
    EXPECT_EQ(slurm.job_id, expected.job);
    EXPECT_EQ(slurm.step, expected.step);
    // For a container, systemd_unit is the service that started it or the container's own unit. find_origin() drops it.
    EXPECT_EQ(origin.container ? "" : origin.systemd_unit, expected.unit);
    EXPECT_EQ(origin.login_session, expected.session);
    EXPECT_EQ(origin.tmux.has_value(), expected.is_tmux);
  }
  EXPECT_GE(kPathCases.size(), 70U);
}

// Sources: cgroup.conf(5) of Slurm 26.05 has the example sEKNKTV3WPV500; cgroup_v2.html has the folders of steps.
TEST(CgroupPath, FindsTheGroupOfASluid) {
  const std::string scope = "/system.slice/slurmstepd.scope/", node = "/system.slice/n1_slurmstepd.scope/";
  const auto group = [](const std::string& path) { return find_sluid_group("0::" + path + "\n"); };
  EXPECT_EQ(group(scope + "sEKNKTV3WPV500/step_0/user/task_0"), (SluidGroup{scope + "sEKNKTV3WPV500", "0"}));
  EXPECT_EQ(group(node + "s5K1KKYAYG5D00/step_batch/user/task_special"),
            (SluidGroup{node + "s5K1KKYAYG5D00", "batch"}));
  EXPECT_EQ(group(scope + "sEKNKTV3WPV500"), (SluidGroup{scope + "sEKNKTV3WPV500", ""}));
  for (const auto& path : {scope + "job_42/step_0", scope + "system", scope + "sEKNKTV3WPV50U/step_0",
                           scope + "xEKNKTV3WPV500/step_0", std::string("/user.slice/sEKNKTV3WPV500/step_0")}) {
    EXPECT_EQ(group(path), std::nullopt) << path;
  }
  EXPECT_EQ(find_sluid_group("4:memory:" + scope + "sEKNKTV3WPV500/step_0\n"), std::nullopt);
}

TEST(CgroupPath, NamesStepsAsSlurmDoes) {
  EXPECT_EQ(slurm_step_name("step_0"), "0");
  EXPECT_EQ(slurm_step_name("17"), "17");
  EXPECT_EQ(slurm_step_name("4294967291"), "batch");
  EXPECT_EQ(slurm_step_name("step_4294967292"), "extern");
  EXPECT_EQ(slurm_step_name("4294967290"), "interactive");
  EXPECT_EQ(slurm_step_name(""), "");
}

}  // namespace
}  // namespace yoke::device
