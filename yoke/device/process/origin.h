// yoke/device/process/origin.h -- finds the container, job, session or notebook to which a process belongs.
//
// The cgroups of every process are readable. The environment is readable only for processes of the same user (or by
// root), and a process can set it freely. Unknown values are left out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::device {

struct Container {
  std::string runtime;  ///< "docker", "podman", "kubernetes", "lxc", "apptainer"...; "container" if unknown.
  std::string id;       ///< All 64 hexadecimal digits; for LXC and machines, the name; empty if unknown.
  std::string name;     ///< The name that the user chose; for apptainer, the name of the image.
  std::string pod_uid;  ///< Set for Kubernetes.
  std::optional<int64_t> inner_pid;  ///< The PID inside the container.

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
  std::string session;  ///< The session's number, as in `tmux attach -t '$2'`; empty if not known.
  std::string pane;     ///< "%5"
  std::string socket;   ///< "/tmp/tmux-1000/default"

  bool operator==(const Tmux&) const = default;
};

struct Jupyter {
  std::string notebook;   ///< The notebook's path; empty if not known.
  std::string kernel_id;  ///< The ID in kernel-ID.json.

  bool operator==(const Jupyter&) const = default;
};

/// A rank that torchrun or `yoke run` started.
struct TorchRank {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::string run_id;

  bool operator==(const TorchRank&) const = default;
};

/// The origin of a process. Several members may be set.
struct Origin {
  std::optional<Container> container;
  std::optional<SlurmJob> slurm;
  std::optional<Tmux> tmux;
  std::optional<std::string> screen;  ///< GNU screen's session, "4711.train"; empty when not known.
  std::optional<Jupyter> jupyter;
  std::optional<TorchRank> torch_rank;
  std::string systemd_unit;   ///< "ollama.service"
  std::string login_session;  ///< The session's number in systemd, such as "3".

  bool operator==(const Origin&) const = default;
};

/// Returns a short text for a table: "docker 3f2a91c04b7e", "slurm 4121.0, rank 3/8", "jupyter train.ipynb", "tmux 2";
/// empty if nothing is known. May contain arbitrary bytes from the process.
std::string label(const Origin& origin);

/// Finds the origin of `pid` below `proc`, as far as permissions allow. Does not throw. May block, like
/// describe_process().
Origin origin_of_process(int64_t pid, const std::filesystem::path& proc = "/proc");

// The functions below are pure.

/// An ancestor of a process.
struct Ancestor {
  std::string comm;
  std::string cmdline;  ///< Arguments, each ended by a NUL.
};

/// Texts from /proc/PID. `ancestors` begins with the process itself, followed by its parent.
struct OriginSources {
  std::string_view cgroup;
  std::optional<std::string_view> environment;  ///< nullopt if it may not be read.
  std::vector<Ancestor> ancestors = {};
};
Origin find_origin(const OriginSources& sources);

}  // namespace yoke::device
