// yoke/device/process/origin.h -- what a process belongs to: container, job, session, notebook.
//
// cgroups can be read of every process; the environment only of one's own (or by root), and it is what the process says
// of itself. What is not known is left out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::device {

struct Container {
  std::string runtime;  ///< "docker", "podman", "kubernetes", "lxc", "apptainer"...; "container" when it is not known.
  std::string id;       ///< Whole, of 64 hexadecimal digits; of LXC and machines their name; empty when not known.
  std::string name;     ///< What its user called it, or the image of apptainer.
  std::string pod_uid;  ///< Kubernetes.
  std::optional<int64_t> inner_pid;  ///< Its PID inside.

  bool operator==(const Container&) const = default;
};

struct SlurmJob {
  int64_t job_id = 0;
  std::string step;  ///< "0", "batch", "extern", "interactive"; empty when not known.
  std::string name;
  std::string array_task;  ///< "4100_7"

  bool operator==(const SlurmJob&) const = default;
};

struct Tmux {
  std::string session;  ///< Its number: `tmux attach -t '$2'`. Empty when not known.
  std::string pane;     ///< "%5"
  std::string socket;   ///< "/tmp/tmux-1000/default"

  bool operator==(const Tmux&) const = default;
};

struct Jupyter {
  std::string notebook;   ///< Its path; empty when not known.
  std::string kernel_id;  ///< Of kernel-ID.json.

  bool operator==(const Jupyter&) const = default;
};

/// One of several processes that torchrun or `yoke run` started together.
struct TorchRank {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::string run_id;

  bool operator==(const TorchRank&) const = default;
};

/// Several may be true at once.
struct Origin {
  std::optional<Container> container;
  std::optional<SlurmJob> slurm;
  std::optional<Tmux> tmux;
  std::optional<std::string> screen;  ///< GNU screen's session, "4711.train"; empty when not known.
  std::optional<Jupyter> jupyter;
  std::optional<TorchRank> torch_rank;
  std::string systemd_unit;   ///< "ollama.service"
  std::string login_session;  ///< systemd's number of it: "3".

  bool operator==(const Origin&) const = default;
};

/// For a column: "docker 3f2a91c04b7e", "slurm 4121.0, rank 3/8", "jupyter train.ipynb", "tmux 2"; empty: nothing
/// known. Any bytes, like the texts in it.
std::string label(const Origin& origin);

/// Of `pid` below `proc`, as far as permissions allow. Nothing is thrown; may block as describe_process() may.
Origin origin_of_process(int64_t pid, const std::filesystem::path& proc = "/proc");

// The parts without a machine.

/// One of a process's parents.
struct Ancestor {
  std::string comm;
  std::string cmdline;  ///< Arguments, each ended by a NUL.
};

/// What the texts of /proc/PID tell. `ancestors` begins with the process itself, then its parent.
struct OriginSources {
  std::string_view cgroup;
  std::optional<std::string_view> environment;  ///< nullopt: not permitted.
  std::vector<Ancestor> ancestors = {};
};
Origin find_origin(const OriginSources& sources);

}  // namespace yoke::device
