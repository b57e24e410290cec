#include "yoke/slurm/job/verify_step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "yoke/base/command_output.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/host.h"
#include "yoke/base/json.h"
#include "yoke/base/process.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/contract/rank_env.h"
#include "yoke/device/cpu/locality.h"
#include "yoke/device/topology/connections.h"
#include "yoke/device/topology/topology.h"
#include "yoke/device/visibility/visibility.h"
#include "yoke/slurm/verify/request.h"
#include "yoke/slurm/words/programs.h"

namespace yoke::slurm {
namespace {

constexpr std::chrono::seconds kStepTime{180};
constexpr size_t kMostMeasured = 16;

/// Starts a step that reads, and returns what its tasks have, ordered by rank.
std::vector<TaskSeen> read_step(const std::vector<std::string>& argv, const Environment& environment) {
  const auto output = run_quietly(argv, environment, kStepTime);
  if (output.timed_out || output.status != 0) throw step_failure(output, kStepTime);
  auto tasks = tasks_in(output.out);
  if (tasks.empty()) throw step_failure(output, kStepTime);
  return tasks;
}

/// The ranks of the findings that are measured, each once.
std::vector<int64_t> ranks_to_measure(const std::vector<VerifyFinding>& findings) {
  std::vector<int64_t> ranks;
  for (const auto& finding : findings) ranks.insert(ranks.end(), finding.ranks.begin(), finding.ranks.end());
  std::ranges::sort(ranks);
  ranks.erase(std::ranges::unique(ranks).begin(), ranks.end());
  if (ranks.size() > kMostMeasured) ranks.resize(kMostMeasured);
  return ranks;
}

std::string measured_text(const TaskSeen& task) {
  const auto& measured = *task.measured;
  auto text = fmt::format("measured: rank {} copies memory at {}/s on its {}", task.rank, format_bytes(measured.own),
                          counted(measured.num_own, "CPU"));
  if (measured.num_whole > 0) {
    text += fmt::format(", {}/s on the {} CPUs of its control group", format_bytes(measured.whole), measured.num_whole);
  }
  return text;
}

constexpr int64_t kFirstSpecialStepId = 0xfffffff0;  // the batch script and the shell of salloc

/// The value of a line such as "Mems_allowed_list:\t0-1".
std::string status_value(const std::string& status, std::string_view name) {
  for (const auto line : lines_of(status)) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') continue;
    const auto words = words_of(line.substr(name.size() + 1));
    return words.empty() ? "" : std::string(words[0]);
  }
  return "";
}

/// The policy by which the kernel chooses memory for this process (get_mempolicy(2)).
void read_memory_policy(TaskSeen& task) {
  constexpr size_t kBits = 8 * sizeof(unsigned long), kNodes = 1024;
  std::array<unsigned long, kNodes / kBits> mask{};
  int mode = 0;
  task.memory_policy = "default";
  if (syscall(SYS_get_mempolicy, &mode, mask.data(), kNodes, nullptr, 0) != 0) return;
  for (size_t node = 0; node < kNodes; ++node) {
    if ((mask[node / kBits] >> (node % kBits) & 1) != 0) task.memory_policy_nodes.add(static_cast<int64_t>(node));
  }
  constexpr int kFlags = MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES | (1 << 13);
  constexpr int kLocal = 4, kPreferredMany = 5;
  const char* name = nullptr;
  switch (mode & ~kFlags) {
    case MPOL_BIND: name = "bind"; break;
    case MPOL_PREFERRED:
    case kPreferredMany: name = "prefer"; break;
    case MPOL_INTERLEAVE: name = "interleave"; break;
    case kLocal: task.memory_policy = "local"; return;
    default: return;
  }
  task.memory_policy = fmt::format("{} {}", name, task.memory_policy_nodes.to_list());
}

/// The network card with the shortest path to each GPU. Without hwloc there is none.
void add_network(std::vector<GpuSeen>& gpus, const std::vector<device::Device>& devices, const std::string& sysroot) {
  if (gpus.empty()) return;
  device::LinkMatrix matrix;
  try {
    device::TopologyOptions where;
    if (!sysroot.empty()) where.sysroot = sysroot;
    matrix = link_matrix(device::load_topology(where), devices);
  } catch (const Error&) {  // hwloc is not installed
    return;
  }
  for (auto& gpu : gpus) {
    const auto row = std::ranges::find(matrix.endpoints, gpu.pci_bus_id, &device::Endpoint::pci_bus_id);
    if (row == matrix.endpoints.end()) continue;
    const auto& connections = matrix.connections[static_cast<size_t>(row - matrix.endpoints.begin())];
    std::optional<size_t> best;
    for (size_t i = 0; i < matrix.endpoints.size(); ++i) {
      if (matrix.endpoints[i].kind != device::Endpoint::Kind::kNic) continue;
      if (!best || connections[i].kind < connections[*best].kind) best = i;
    }
    if (best) gpu.network = fmt::format("{} ({})", matrix.endpoints[*best].name, label(connections[*best]));
  }
}

/// The GPUs that Slurm gave to this step on this node. Of shares of a GPU (shards, MPS) Slurm names no devices.
std::optional<int64_t> gpus_given(const Environment& environment) {
  if (!environment.contains("SLURM_JOB_ID")) return std::nullopt;
  if (environment.contains("SLURM_SHARDS_ON_NODE") || environment.contains("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")) {
    return std::nullopt;
  }
  auto list = environment.find("SLURM_STEP_GPUS");
  const auto step = parse_int(environment.value_or("SLURM_STEP_ID", ""));
  if (!list && (!step || *step >= kFirstSpecialStepId)) list = environment.find("SLURM_JOB_GPUS");
  if (!list || list->empty()) return 0;
  return static_cast<int64_t>(split(*list, ',').size());
}

/// What the variables hide, and why.
std::string hidden_why(const device::Visibility& visibility) {
  std::string text;
  for (const auto& variable : visibility.variables) {
    if (!variable.has_effect || variable.name == "CUDA_DEVICE_ORDER" || variable.name == "ZE_AFFINITY_MASK") continue;
    const auto add = [&](const std::string& why) {
      text += fmt::format("{}{}={}: {}", text.empty() ? "" : "; ", variable.name, printable(variable.value), why);
    };
    const auto hidden = std::ranges::find_if(
        variable.entries, [](const auto& entry) { return entry.verdict != device::Verdict::kVisible; });
    if (hidden != variable.entries.end()) {
      add(fmt::format("'{}' is {}{}{}", printable(hidden->text), name(hidden->verdict), hidden->why.empty() ? "" : ", ",
                      hidden->why));
    } else if (variable.entries.empty()) {
      add(variable.effect);
    }
  }
  return text;
}

/// Why drivers show no GPUs, or fewer than there are.
std::string driver_why(const device::Snapshot& snapshot) {
  std::string text;
  const auto add = [&](const std::string& why) { text += (text.empty() ? "" : "; ") + why; };
  for (const auto& backend : snapshot.backends) {
    if (backend.backend == "cpu" || (backend.is_available && backend.has_answered && !backend.is_broken)) continue;
    add(fmt::format("{}: {}", backend.backend, backend.reason.empty() ? "it does not answer" : backend.reason));
  }
  const auto num_closed = std::ranges::count(snapshot.devices, device::State::kNoPermission, &device::Device::state);
  if (num_closed > 0) add(fmt::format("this user may not open {}", counted(num_closed, "GPU")));
  return text;
}

std::string trouble_of(const device::Device& device) {
  const bool is_usable = device.state == device::State::kFree || device.state == device::State::kBusy;
  if (is_usable) return "";
  return std::string(name(device.state)) + (device.reason.empty() ? "" : ", " + device.reason);
}

void read_gpus_of_task(TaskSeen& task, device::Source& source, const std::string& sysroot,
                       const Environment& environment) {
  auto snapshot = source.sample({.processes = false, .links = true});
  task.gpus_given = gpus_given(environment);
  task.driver_why = driver_why(snapshot);
  // In a control group that confines devices, drivers leave out the others or say that this user may not use them.
  std::erase_if(snapshot.devices, [](const device::Device& device) {
    return device.vendor == device::Vendor::kCpu || device.state == device::State::kNoPermission;
  });
  for (const auto& device : snapshot.devices) {
    GpuSeen gpu{.pci_bus_id = device.facts.pci_bus_id,
                .name = device.facts.name,
                .numa_node = device.facts.numa_node,
                .cpus = CpuSet::parse_list(device.facts.cpu_affinity).value_or(CpuSet()),
                .trouble = trouble_of(device)};
    task.openable.push_back(std::move(gpu));
  }
  const auto visibility = device::visibility(environment, snapshot);
  task.hidden_why = hidden_why(visibility);
  std::vector<std::pair<int64_t, int64_t>> ordinals;
  for (const auto& one : visibility.devices) {
    if (!one.ordinal) continue;
    const auto found = std::ranges::find(snapshot.devices, one.index, &device::Device::index);
    if (found != snapshot.devices.end()) ordinals.emplace_back(*one.ordinal, found - snapshot.devices.begin());
  }
  std::ranges::sort(ordinals);
  for (const auto& [ordinal, place] : ordinals) task.visible.push_back(place);
  for (const auto& variable : visibility.variables) task.variables.push_back(variable.name + "=" + variable.value);
  add_network(task.openable, snapshot.devices, sysroot);
}

}  // namespace

std::vector<std::string> StepCommand::argv(const std::vector<int64_t>& measured) const {
  std::vector<std::string> argv = {"srun"};
  argv.insert(argv.end(), srun.begin(), srun.end());
  argv.insert(argv.end(), read.begin(), read.end());
  if (!measured.empty()) argv.push_back(fmt::format("--measure={}", fmt::join(measured, ",")));
  return argv;
}

StepReport verify_step(const StepCommand& command, const StepWish& wish, const Environment& environment) {
  if (!environment.contains("SLURM_JOB_ID")) {
    throw Error(ErrorCode::kFailedPrecondition,
                "there is no job here (SLURM_JOB_ID is not set); run this in a batch script or in the shell of "
                "salloc, or add --dry to look at the options alone");
  }
  if (!find_program("srun", environment)) {
    throw Error(ErrorCode::kNotFound, "srun is not in PATH; load the module of Slurm");
  }
  check_controller(environment);
  StepReport report{.tasks = read_step(command.argv({}), environment), .findings = {}};
  report.findings = judge(report.tasks, wish);
  const auto ranks = ranks_to_measure(report.findings);
  if (ranks.empty()) return report;
  try {
    for (const auto& seen : read_step(command.argv(ranks), environment)) {
      const auto found = std::ranges::find(report.tasks, seen.rank, &TaskSeen::rank);
      if (found != report.tasks.end()) found->measured = seen.measured;
    }
  } catch (const Error& error) {  // the findings are worth more than the measurement
    report.not_measured = error.what();
  }
  return report;
}

nlohmann::ordered_json to_json(const std::vector<VerifyFinding>& findings) {
  return json_list(findings, [](const VerifyFinding& one) -> Json {
    return {{"ranks", one.ranks}, {"text", one.text}, {"advice", one.advice}};
  });
}

nlohmann::ordered_json to_json(const StepReport& report) {
  Json json = {{"tasks", json_list(report.tasks, [](const TaskSeen& task) { return to_json(task); })},
               {"findings", to_json(report.findings)},
               {"notes", notes(report.tasks)}};
  if (!report.not_measured.empty()) json["not_measured"] = report.not_measured;
  return json;
}

std::string to_text(const std::vector<VerifyFinding>& findings) {
  std::string text;
  for (const auto& one : findings) text += fmt::format("wrong: {}\n       {}\n", one.text, one.advice);
  return text;
}

std::string notes_text(const std::vector<TaskSeen>& tasks) {
  std::string text;
  for (const auto& sentence : notes(tasks)) text += "note: " + sentence + '\n';
  return text;
}

std::string to_text(const StepReport& report, int64_t width) {
  const auto& [tasks, findings, not_measured] = report;
  auto text = to_text(to_table(tasks), width) + '\n' + to_text(findings);
  for (const auto& task : tasks) {
    if (task.measured) text += measured_text(task) + '\n';
  }
  if (!not_measured.empty()) text += "not measured: copies of memory: " + not_measured + '\n';
  text += notes_text(tasks);
  const bool has_devices = std::ranges::any_of(tasks, [](const auto& task) { return task.device() != nullptr; });
  if (has_devices && !findings.empty()) text += "not measured: copies between hosts and devices\n";
  text += findings.empty()
              ? fmt::format("verdict: right; {}\n", verdict_text(tasks))
              : fmt::format("verdict: wrong, for {}\n", counted(static_cast<int64_t>(findings.size()), "reason"));
  return text;
}

TaskSeen read_task(device::Source& source, const TaskReaderOptions& options, const Environment& environment) {
  TaskSeen task;
  auto of_rank = environment;  // without an outer launcher's, and without the need for an address
  for (const auto* name : {"RANK", "WORLD_SIZE"}) of_rank.erase(name);
  of_rank.set("MASTER_ADDR", "127.0.0.1");
  const auto place = read_rank_env(of_rank);
  task.rank = place.rank;
  task.local_rank = place.local_rank;
  task.local_world_size = place.local_world_size;
  task.host = host_name();
  const auto locality =
      options.sysroot.empty() ? device::read_cpu_locality() : device::read_cpu_locality(options.sysroot);
  task.cpus = device::read_cpu_locality().allowed;
  for (const auto& node : locality.nodes) task.numa.push_back({node.number, node.cpus});
  const auto status = yoke::text_of(std::filesystem::path("/proc/self/status"));
  task.memory_nodes = CpuSet::parse_list(status_value(status, "Mems_allowed_list")).value_or(CpuSet());
  task.cgroup = yoke::text_of(std::filesystem::path("/proc/self/cgroup"));
  task.cpus_asked = environment.find_int("SLURM_CPUS_PER_TASK");
  read_memory_policy(task);
  if (options.has_gpus) read_gpus_of_task(task, source, options.sysroot, environment);
  return task;
}

bool is_a_task(const Environment& environment) {
  if (environment.contains("OMPI_COMM_WORLD_RANK") || environment.contains("FLUX_TASK_RANK")) return true;
  const auto step = environment.find("SLURM_STEP_ID");
  return step && parse_int(*step).value_or(0) < kFirstSpecialStepId;
}

}  // namespace yoke::slurm
