#include "yoke/device/process/origin.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>

#include "yoke/base/environment.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/device/process/detail/cgroup_path.h"
#include "yoke/device/process/folder.h"
#include "yoke/device/process/info.h"

namespace yoke::device {
namespace {

constexpr size_t kCgroupBytes = 64 << 10;
constexpr size_t kEnvironBytes = 256 << 10;
constexpr size_t kAncestorBytes = 16 << 10;
constexpr int kMaxAncestors = 32;  // a PID reused while the parents are read could make a cycle

/// The variables in an environment block of the kernel; no variables if it may not be read.
class Variables {
 public:
  explicit Variables(std::optional<std::string_view> environment) {
    for (const auto variable : split_terminated(environment.value_or(""), '\0')) {
      const auto equals = variable.find('=');
      if (equals != variable.npos) values_.emplace(variable.substr(0, equals), variable.substr(equals + 1));
    }
  }
  std::string_view operator[](std::string_view name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::string_view() : found->second;
  }
  std::optional<int64_t> number(std::string_view name) const { return parse_int((*this)[name]); }

 private:
  std::unordered_map<std::string_view, std::string_view> values_;
};

using Arguments = std::vector<std::string_view>;

std::string_view value_after(const Arguments& arguments, std::string_view option) {
  const auto found = std::ranges::find(arguments, option);
  return found == arguments.end() || found + 1 == arguments.end() ? std::string_view() : *(found + 1);
}

/// Returns the container that a parent process with these arguments started. Such a parent stays alive, and has the
/// container's id (with podman, also the name) in its arguments.
std::optional<Container> started_by(const Arguments& arguments) {
  if (arguments.empty()) return std::nullopt;
  const auto program = base_name(arguments[0]);
  if (program.starts_with("containerd-shim")) {
    const auto space = value_after(arguments, "-namespace");
    const auto runtime = space == "moby" ? "docker" : space == "k8s.io" ? "kubernetes" : "containerd";
    return Container{.runtime = runtime, .id = std::string(value_after(arguments, "-id"))};
  }
  if (program == "conmon") {
    return Container{.runtime = "podman",
                     .id = std::string(value_after(arguments, "-c")),
                     .name = std::string(value_after(arguments, "-n"))};
  }
  for (const auto& [title, runtime] :
       {std::pair{"Apptainer runtime parent", "apptainer"}, std::pair{"Singularity runtime parent", "singularity"}}) {
    if (!arguments[0].starts_with(title)) continue;
    const auto colon = arguments[0].find(": ");
    const auto image = colon == std::string_view::npos ? std::string_view() : arguments[0].substr(colon + 2);
    return Container{.runtime = runtime, .name = std::string(image)};
  }
  return std::nullopt;
}

void merge_container(Origin& origin, const Container& found) {
  auto& container = origin.container;
  if (!container) {
    container = found;
  } else if (container->id == found.id) {
    // The cgroup's name may not name the runtime, as with `docker run --cgroup-parent`. The parent process of a crio
    // container is conmon, as with podman.
    if (container->runtime == "container") container->runtime = found.runtime;
    if (container->runtime == found.runtime && container->name.empty()) container->name = found.name;
  }
}

void add_container_variables(const Variables& variables, Origin& origin) {
  auto& container = origin.container;
  if (container) {
    if (!container->pod_uid.empty()) container->name = variables["HOSTNAME"];  // the pod's name
    if (container->runtime != "apptainer" && container->runtime != "singularity") return;
  }
  for (const auto& [runtime, name] :
       {std::pair{"apptainer", "APPTAINER_NAME"}, std::pair{"singularity", "SINGULARITY_NAME"}}) {
    if (variables[name].empty()) continue;
    container = Container{.runtime = runtime, .name = std::string(variables[name])};
    return;
  }
  const auto named = variables["container"];
  for (const auto runtime : {"podman", "docker", "lxc", "systemd-nspawn"}) {
    if (!container && named == runtime) container = Container{.runtime = runtime};
  }
}

/// Parses "slurmstepd: [4121.0]", the title of the process that is the ancestor of all processes of a step.
std::optional<SlurmJob> step_of_title(std::string_view title) {
  constexpr std::string_view kBefore = "slurmstepd: [";
  const auto close = title.find(']');
  if (!title.starts_with(kBefore) || close == title.npos) return std::nullopt;
  const auto id = title.substr(kBefore.size(), close - kBefore.size());
  const auto dot = std::min(id.find('.'), id.size());
  const auto job = parse_int(id.substr(0, dot));
  if (!job || *job <= 0) return std::nullopt;
  return SlurmJob{.job_id = *job, .step = slurm_step_name(id.substr(std::min(dot + 1, id.size())))};
}

void add_slurm_variables(const Variables& variables, Origin& origin) {
  const auto job =
      variables["SLURM_JOB_ID"].empty() ? variables.number("SLURM_JOBID") : variables.number("SLURM_JOB_ID");
  if (!job || *job <= 0) return;
  auto& slurm = origin.slurm;
  // The cgroup has priority, because the variables may come from a different job.
  if (slurm && slurm->job_id != *job) return;
  if (!slurm) slurm = SlurmJob{.job_id = *job};
  if (slurm->step.empty()) slurm->step = slurm_step_name(variables["SLURM_STEP_ID"]);
  slurm->name = variables["SLURM_JOB_NAME"];
  const auto array = variables["SLURM_ARRAY_JOB_ID"], task = variables["SLURM_ARRAY_TASK_ID"];
  if (!array.empty() && !task.empty()) slurm->array_task = fmt::format("{}_{}", array, task);
}

void add_tmux_variables(const Variables& variables, Origin& origin) {
  const auto tmux = variables["TMUX"];  // SOCKET,PID,SESSION
  const auto last = tmux.rfind(',');
  if (last == tmux.npos || last == 0) return;
  const auto before = tmux.rfind(',', last - 1);
  if (before == tmux.npos) return;
  origin.tmux = Tmux{std::string(tmux.substr(last + 1)), std::string(variables["TMUX_PANE"]),
                     std::string(tmux.substr(0, before))};
}

/// Returns "1f0b..." from an argument ".../kernel-1f0b....json", which Jupyter kernels of all languages have.
std::string_view kernel_id(const Arguments& arguments) {
  constexpr std::string_view kBefore = "kernel-", kAfter = ".json";
  for (const auto argument : arguments) {
    const auto file = base_name(argument);
    if (file.starts_with(kBefore) && file.ends_with(kAfter) && file.size() > kBefore.size() + kAfter.size()) {
      return file.substr(kBefore.size(), file.size() - kBefore.size() - kAfter.size());
    }
  }
  return {};
}

void add_ancestor(const Ancestor& ancestor, bool is_itself, Origin& origin) {
  const auto arguments = split_terminated(ancestor.cmdline, '\0');
  if (const auto kernel = kernel_id(arguments); !kernel.empty() && !origin.jupyter) {
    origin.jupyter = Jupyter{.kernel_id = std::string(kernel)};
  }
  if (is_itself) return;
  if (const auto container = started_by(arguments)) merge_container(origin, *container);
  if (ancestor.comm == "tmux: server" && !origin.tmux) origin.tmux.emplace();
  if (arguments.empty()) return;
  if (arguments[0] == "SCREEN" && !origin.screen) origin.screen.emplace();
  if (!origin.slurm) origin.slurm = step_of_title(arguments[0]);
}

void add_variables(const Variables& variables, Origin& origin) {
  add_container_variables(variables, origin);
  add_slurm_variables(variables, origin);
  // Slurm copies the environment of the submitting host into the job. Therefore, in a job, the variables of tmux,
  // screen and Jupyter are used only if a parent process confirms them.
  const bool is_own = !origin.slurm.has_value();
  if (is_own || origin.tmux) add_tmux_variables(variables, origin);
  if ((is_own || origin.screen) && !variables["STY"].empty()) origin.screen = variables["STY"];
  const bool is_kernel = !variables["JPY_SESSION_NAME"].empty() || !variables["JPY_PARENT_PID"].empty();
  if (is_own && is_kernel && !origin.jupyter) origin.jupyter.emplace();
  if (origin.jupyter) origin.jupyter->notebook = variables["JPY_SESSION_NAME"];
  const auto rank = variables.number("RANK"), world_size = variables.number("WORLD_SIZE");
  if (rank && world_size && *rank >= 0 && *rank < *world_size) {
    const auto run_id = variables["TORCHELASTIC_RUN_ID"];
    origin.torch_rank = TorchRank{*rank, *world_size, run_id == "none" ? "" : std::string(run_id)};
  }
}

/// Returns the last number in the line "NSpid:\t4711\t7", if it has at least two.
std::optional<int64_t> parse_inner_pid(std::string_view status) {
  const auto line = status.find("\nNSpid:");
  if (line == status.npos) return std::nullopt;
  auto numbers = status.substr(line + 7);
  numbers = numbers.substr(0, numbers.find('\n'));
  const auto tab = numbers.rfind('\t');
  if (tab == numbers.npos || tab == 0) return std::nullopt;
  return parse_int(numbers.substr(tab + 1));
}

std::vector<Ancestor> read_ancestors(int64_t pid, const ProcessFolder& itself, const std::filesystem::path& proc) {
  std::vector<Ancestor> ancestors;
  const auto add = [&](const ProcessFolder& folder) -> int64_t {
    const auto text = folder.read("stat", kAncestorBytes);
    const auto stat = text ? parse_process_stat(*text) : std::nullopt;
    if (!stat) return 0;
    ancestors.push_back({stat->comm, folder.read("cmdline", kAncestorBytes).value_or("")});
    return stat->parent_pid;
  };
  for (auto parent = add(itself); parent > 1 && parent != pid && ancestors.size() < kMaxAncestors;) {
    const ProcessFolder folder(parent, proc);
    parent = folder.is_there() ? add(folder) : 0;
  }
  return ancestors;
}

std::string label(const Container& container) {
  constexpr size_t kShort = 6;
  const bool has_hash = container.id.size() == 64;
  const auto& id = container.pod_uid.empty() ? container.id : container.pod_uid;
  const auto& text = container.name.empty() ? id : container.name;
  const bool is_long = container.name.empty() && (has_hash || !container.pod_uid.empty());
  return text.empty() ? container.runtime
                      : fmt::format("{} {}", container.runtime, is_long ? text.substr(0, kShort) : text);
}

}  // namespace

std::string label(const Origin& origin) {
  std::vector<std::string> parts;
  if (const auto& slurm = origin.slurm) {
    auto text = "slurm " + (slurm->array_task.empty() ? fmt::format("{}", slurm->job_id) : slurm->array_task);
    parts.push_back(slurm->step.empty() ? text : text + "." + slurm->step);
  }
  if (origin.container) parts.push_back(label(*origin.container));
  if (const auto& jupyter = origin.jupyter) {
    const std::string_view kernel = jupyter->kernel_id;
    const auto name = jupyter->notebook.empty() ? kernel.substr(0, 8) : base_name(jupyter->notebook);
    parts.push_back(name.empty() ? "jupyter" : fmt::format("jupyter {}", name));
  } else if (origin.tmux) {
    parts.push_back(origin.tmux->session.empty() ? "tmux" : "tmux " + origin.tmux->session);
  } else if (origin.screen) {
    parts.push_back(origin.screen->empty() ? "screen" : "screen " + *origin.screen);
  }
  if (parts.empty() && !origin.systemd_unit.empty()) parts.push_back(origin.systemd_unit);
  if (parts.empty() && !origin.login_session.empty()) parts.push_back("session " + origin.login_session);
  if (origin.torch_rank) {
    parts.push_back(fmt::format("rank {}/{}", origin.torch_rank->rank, origin.torch_rank->world_size));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

namespace {

/// Finds the job of a SLUID: reads the titles of the slurmstepd processes in the groups of the job's steps. Needed for
/// processes that are no longer descendants of slurmstepd, and whose environment may not be read.
std::optional<SlurmJob> job_of_sluid(const SluidGroup& group, const std::filesystem::path& proc) {
  const auto job_folder = proc.parent_path() / "sys/fs/cgroup" / std::filesystem::path(group.job_path).relative_path();
  for (const auto& step : entries_of(job_folder)) {
    if (!step.filename().native().starts_with("step_")) continue;
    const auto members = text_of(step / "slurm/cgroup.procs");
    for (const auto line : lines_of(members)) {
      const auto pid = parse_int(line);
      if (!pid) continue;
      auto job = step_of_title(read_text(proc / fmt::format("{}", *pid) / "cmdline", kAncestorBytes).value_or(""));
      if (!job) continue;
      job->step = group.step;
      return job;
    }
  }
  return std::nullopt;
}

}  // namespace

Origin find_origin(const OriginSources& sources) {
  Origin origin = parse_cgroup(sources.cgroup);
  for (const auto& ancestor : sources.ancestors) add_ancestor(ancestor, &ancestor == sources.ancestors.data(), origin);
  add_variables(Variables(sources.environment), origin);
  // A job or container does not belong to the systemd service that started it.
  if (origin.container || origin.slurm) origin.systemd_unit.clear();
  return origin;
}

Origin origin_of_process(int64_t pid, const std::filesystem::path& proc) try {
  const ProcessFolder folder(pid, proc);
  if (!folder.is_there()) return {};
  const auto cgroup = folder.read("cgroup", kCgroupBytes).value_or("");
  const auto environment = folder.read("environ", kEnvironBytes);
  auto origin = find_origin({cgroup, environment, read_ancestors(pid, folder, proc)});
  if (!origin.slurm) {
    if (const auto group = find_sluid_group(cgroup)) origin.slurm = job_of_sluid(*group, proc);
    if (origin.slurm) origin.systemd_unit.clear();
  }
  if (origin.container)
    origin.container->inner_pid = parse_inner_pid(folder.read("status", kAncestorBytes).value_or(""));
  return origin;
} catch (const std::exception&) {  // out of memory
  return {};
}

}  // namespace yoke::device
