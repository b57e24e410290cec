#include "yoke/slurm/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/base/text.h"

namespace yoke::slurm {
namespace {

constexpr std::string_view kTaskLine = "yoke-task ", kTaskEnd = "end";
constexpr size_t kMostInLine = 800;  // srun keeps lines of up to 1,024 bytes whole

using TasksOfHost = std::vector<const TaskSeen*>;

CpuSet parsed(const nlohmann::json& json, const char* name) {
  return CpuSet::parse_list(json.at(name).get<std::string>()).value_or(CpuSet());
}

CpuSet nodes_of(const TaskSeen& task) {
  CpuSet nodes;
  for (const auto& node : task.numa) {
    if (node.cpus.intersects(task.cpus)) nodes.add(node.number);
  }
  return nodes;
}

std::vector<int64_t> ranks_of(const TasksOfHost& tasks) {
  std::vector<int64_t> ranks;
  for (const auto* task : tasks) ranks.push_back(task->rank);
  return ranks;
}

std::string has_or_have(size_t number) { return number == 1 ? "has" : "have"; }

/// Why a task that should have a device has none.
std::string why_no_device(const TaskSeen& task) {
  if (!task.visible.empty()) {
    return fmt::format("its local rank is {}, and programs see {} device{}", task.local_rank, task.visible.size(),
                       task.visible.size() == 1 ? "" : "s");
  }
  if (!task.openable.empty()) return task.hidden_why.empty() ? "variables hide all devices" : task.hidden_why;
  return task.driver_why.empty() ? "no driver shows one" : "no driver shows one: " + task.driver_why;
}

/// Whether the user of srun has chosen the CPUs of each task, so that Slurm's defaults explain nothing.
bool has_chosen_cpus(const std::string& cpu_bind) { return contains_any("," + cpu_bind, {",map_", ",mask_", ",rank"}); }

class Judge {
 public:
  explicit Judge(const StepWish& wish) : wish_(wish) {}

  std::vector<VerifyFinding> findings;

  void judge_host(const std::string& host, const TasksOfHost& tasks) {
    host_ = printable(host);
    judge_devices(tasks);
    judge_cpus(tasks);
    for (const auto* task : tasks) judge_locality(*task);
  }

 private:
  /// `text` goes on after the ranks and their host.
  void add(const TasksOfHost& tasks, std::string_view text, std::string advice) {
    const auto ranks = ranks_of(tasks);
    findings.push_back({ranks, fmt::format("{} on {} {}", ranks_text(ranks), host_, text), std::move(advice)});
  }

  void judge_devices(const TasksOfHost& tasks) {
    std::map<std::string, TasksOfHost> by_device;
    TasksOfHost without;
    bool has_need = false;
    for (const auto* task : tasks) {
      const auto* device = task->device();
      if (device != nullptr && task->counts_devices()) {
        by_device[device->pci_bus_id].push_back(task);
      } else if (device == nullptr || wish_.wants_gpu) {
        without.push_back(task);
      }
      has_need = has_need || needs_device(*task);
    }
    for (const auto& [id, sharing] : by_device) {
      if (sharing.size() < 2) continue;
      add(sharing, fmt::format("have the same device, {}", id),
          "ask for a device for each task: --gpus-per-node as many as --ntasks-per-node, and look for "
          "CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES in the script");
    }
    if (has_need || !by_device.empty()) judge_missing(without, !by_device.empty());
    for (const auto& [id, owners] : by_device) judge_state(owners);
    judge_number(tasks);
    judge_isolation(by_device);
  }

  /// Whether a task without a device lacks something. A variable that hides the GPUs of this node is of no use to a
  /// program that uses none.
  bool needs_device(const TaskSeen& task) const {
    const bool is_hidden = !task.openable.empty() && task.visible.empty() && !task.hidden_why.empty();
    return task.gpus_given.value_or(0) > 0 || task.names_devices() || is_hidden || wish_.wants_gpu;
  }

  void judge_missing(const TasksOfHost& without, bool others_have) {
    std::map<std::string, TasksOfHost> by_reason;
    for (const auto* task : without) {
      const bool is_given_none = task->gpus_given == 0 && wish_.wants_gpu && !task->names_devices();
      by_reason[is_given_none ? "Slurm gave the step none" : why_no_device(*task)].push_back(task);
    }
    for (const auto& [reason, lacking] : by_reason) {
      const auto& task = *lacking.front();
      const char* advice = "ask for as many devices as tasks on each node";
      if (task.openable.empty()) {
        advice = "`yoke doctor` on that node says what is wrong with its driver; tell the administrators";
      } else if (task.visible.empty() && task.gpus_given != 0) {
        advice = "leave the variable as Slurm sets it; `yoke visible` explains it";
      } else if (task.visible.empty()) {
        advice = "remove or correct the variable; `yoke visible` explains it";
      }
      add(lacking,
          fmt::format("{} no device{}: {}", has_or_have(lacking.size()), others_have ? ", while others have one" : "",
                      reason),
          advice);
    }
  }

  void judge_state(const TasksOfHost& owners) {
    const auto* device = owners.front()->device();
    if (device->trouble.empty()) return;
    add(owners,
        fmt::format("{} the device {}, which cannot be used: {}", has_or_have(owners.size()), device->pci_bus_id,
                    device->trouble),
        "`yoke doctor` on that node says more; a longer --deadline helps if the driver is only slow");
  }

  /// Without control groups that confine devices, only variables keep a job from the GPUs of others.
  void judge_number(const TasksOfHost& tasks) {
    TasksOfHost seeing;
    for (const auto* task : tasks) {
      const auto given = task->gpus_given.value_or(0);
      if (given > 0 && static_cast<int64_t>(task->visible.size()) > given) seeing.push_back(task);
    }
    if (seeing.empty()) return;
    const auto& task = *seeing.front();
    add(seeing,
        fmt::format("{} {} devices, but Slurm gave the step {}; the others may belong to other jobs",
                    seeing.size() == 1 ? "sees" : "see", task.visible.size(), *task.gpus_given),
        "leave CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES as Slurm sets it");
  }

  /// A rank that cannot open the device of another rank cannot map its memory (CUDA IPC, HIP IPC).
  void judge_isolation(const std::map<std::string, TasksOfHost>& by_device) {
    TasksOfHost isolated;
    for (const auto& [id, owners] : by_device) {
      for (const auto* task : owners) {
        const bool sees_all = std::ranges::all_of(by_device, [&](const auto& other) {
          return std::ranges::any_of(task->openable, [&](const auto& gpu) { return gpu.pci_bus_id == other.first; });
        });
        if (!sees_all) isolated.push_back(task);
      }
    }
    if (isolated.empty()) return;
    std::ranges::sort(isolated, {}, &TaskSeen::rank);
    add(isolated,
        "cannot open the devices of the other ranks, because each task has a control group of its own; NCCL and RCCL "
        "then cannot share memory between the GPUs of a node (IPC), and copy through the host",
        "ask by --gpus-per-node instead of --gpus-per-task, and add --gpu-bind=none; programs choose by LOCAL_RANK");
  }

  void judge_cpus(const TasksOfHost& tasks) {
    TasksOfHost sharing, few;
    CpuSet all;
    for (const auto* task : tasks) {
      all |= task->cpus;
      const bool shares = std::ranges::any_of(
          tasks, [&](const auto* other) { return other != task && other->cpus.intersects(task->cpus); });
      if (shares) sharing.push_back(task);
      if (task->cpus_asked && task->cpus.size() < *task->cpus_asked) few.push_back(task);
    }
    const bool is_chosen = has_chosen_cpus(wish_.cpu_bind);
    const auto chosen =
        fmt::format("--cpu-bind={} chooses these CPUs: give each task of a node CPUs of its own in it, or leave it out",
                    printable(wish_.cpu_bind));
    if (!sharing.empty() && all.size() == 1) {
      add(sharing, fmt::format("all have only CPU {}", all.to_list()),
          is_chosen ? chosen
                    : "give --cpus-per-task to srun too (Slurm 22.05 and 23.02 do not take it from the job), or "
                      "--cpu-bind=none and let yoke run bind the ranks");
    } else if (!sharing.empty()) {
      CpuSet shared;
      for (const auto* one : sharing) {
        for (const auto* other : sharing) {
          if (one != other) shared |= one->cpus & other->cpus;
        }
      }
      add(sharing, fmt::format("share the CPUs {}", shared.to_list()),
          is_chosen
              ? chosen
              : "use --cpus-per-task with --cpu-bind=cores, or start one yoke run on each node, which binds the ranks");
    }
    if (!few.empty()) {
      add(few,
          fmt::format("{} fewer CPUs than the {} that were asked for", has_or_have(few.size()),
                      *few.front()->cpus_asked),
          is_chosen ? chosen : "give --cpus-per-task to srun too: Slurm 22.05 and 23.02 do not take it from the job");
    }
  }

  void judge_locality(const TaskSeen& task) {
    const auto nodes = nodes_of(task);
    if (const auto* device = task.device(); device != nullptr && task.counts_devices() && !device->cpus.empty()) {
      if (!device->cpus.intersects(task.cpus)) {
        add({&task},
            fmt::format("has the CPUs {}, but its device {} is close to the CPUs {}", task.cpus.to_list(),
                        device->pci_bus_id, device->cpus.to_list()),
            "use --cpu-bind=none and let yoke run bind, or a mask for each rank (`yoke bind --format mask`)");
      }
    }
    if (!nodes.empty() && !task.memory_nodes.empty() && !nodes.intersects(task.memory_nodes)) {
      add({&task},
          fmt::format("has CPUs of NUMA node {}, but memory only of node {}", nodes.to_list(),
                      task.memory_nodes.to_list()),
          "use --mem-bind=local, or none");
    } else if (!nodes.empty() && !task.memory_policy_nodes.empty() && !nodes.intersects(task.memory_policy_nodes)) {
      add({&task},
          fmt::format("has CPUs of NUMA node {}, but its memory policy is {}", nodes.to_list(), task.memory_policy),
          "use --mem-bind=local, or none");
    }
  }

  const StepWish& wish_;
  std::string host_;  ///< The host that is judged.
};

}  // namespace

const GpuSeen* TaskSeen::device() const {
  const auto place = visible.size() == 1 ? 0 : static_cast<size_t>(local_rank);
  if (place >= visible.size()) return nullptr;
  const auto index = static_cast<size_t>(visible[place]);
  return index < openable.size() ? &openable[index] : nullptr;
}

bool TaskSeen::names_devices() const {
  constexpr std::array<std::string_view, 4> kNames = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                                      "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"};
  return std::ranges::any_of(variables, [&](std::string_view variable) {
    const auto equals = variable.find('=');
    if (equals == variable.npos || std::ranges::find(kNames, variable.substr(0, equals)) == kNames.end()) return false;
    const auto value = variable.substr(equals + 1);
    return !value.empty() && value != "-1" && value != "NoDevFiles";  // Slurm's word for a step without GPUs
  });
}

std::string ranks_text(const std::vector<int64_t>& ranks) {
  CpuSet set;
  for (const auto rank : ranks) {
    if (rank >= 0 && rank < CpuSet::kMaxCpus) set.add(rank);
  }
  auto list = set.to_list();
  for (size_t comma = list.find(','); comma != list.npos; comma = list.find(',', comma + 2)) {
    list.insert(comma + 1, " ");
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + list;
}

std::vector<VerifyFinding> judge(const std::vector<TaskSeen>& tasks, const StepWish& wish) {
  std::map<std::string, TasksOfHost> by_host;
  for (const auto& task : tasks) by_host[task.host].push_back(&task);
  Judge judge(wish);
  for (auto& [host, of_host] : by_host) {
    std::ranges::sort(of_host, {}, &TaskSeen::rank);
    judge.judge_host(host, of_host);
  }
  return judge.findings;
}

std::vector<std::string> notes(const std::vector<TaskSeen>& tasks) {
  std::map<std::string, TasksOfHost> by_host;
  for (const auto& task : tasks) {
    if (task.gpus_given == 0 && !task.visible.empty()) by_host[task.host].push_back(&task);
  }
  std::vector<std::string> sentences;
  for (const auto& [host, seeing] : by_host) {
    sentences.push_back(
        fmt::format("Slurm gave the step no GPU, but {} on {} can open {} that the node has; on a shared node they "
                    "belong to other jobs.",
                    ranks_text(ranks_of(seeing)), printable(host), seeing.front()->visible.size()));
  }
  return sentences;
}

std::string verdict_text(const std::vector<TaskSeen>& tasks) {
  const auto num_devices =
      std::ranges::count_if(tasks, [](const auto& task) { return task.device() != nullptr && task.gpus_given != 0; });
  const bool all_have = num_devices == static_cast<int64_t>(tasks.size());
  auto text = fmt::format("{} CPUs{} of its own",
                          tasks.size() == 1 ? "the rank has" : fmt::format("each of the {} ranks has", tasks.size()),
                          all_have && num_devices > 0 ? " and a device" : "");
  if (num_devices > 0 && !all_have) text += fmt::format(", and {} of them a device", num_devices);
  return text;
}

Table to_table(const std::vector<TaskSeen>& tasks) {
  Table table{.columns = {{"rank", Align::kRight},
                          {"host"},
                          {"device"},
                          {"NUMA"},
                          {"CPUs", Align::kLeft, 8},
                          {"of NUMA"},
                          {"memory"},
                          {"network", Align::kLeft, 8, 1}}};
  for (const auto& task : tasks) {
    const auto* device = task.device();
    const auto dash = [](std::string text) { return text.empty() ? std::string("-") : text; };
    const auto policy = task.memory_policy == "default" ? "" : ", " + task.memory_policy;
    table.rows.push_back({fmt::format("{}", task.rank), task.host, device == nullptr ? "-" : device->pci_bus_id,
                          device != nullptr && device->numa_node ? fmt::format("{}", *device->numa_node) : "-",
                          fmt::format("{} ({})", dash(task.cpus.to_list()), task.cpus.size()),
                          dash(nodes_of(task).to_list()), dash(task.memory_nodes.to_list()) + policy,
                          device == nullptr ? "-" : dash(device->network)});
  }
  return table;
}

nlohmann::ordered_json to_json(const TaskSeen& task) {
  nlohmann::ordered_json json = {{"rank", task.rank},
                                 {"local_rank", task.local_rank},
                                 {"local_world_size", task.local_world_size},
                                 {"host", task.host},
                                 {"cpus", task.cpus.to_list()},
                                 {"memory_nodes", task.memory_nodes.to_list()},
                                 {"memory_policy", task.memory_policy},
                                 {"memory_policy_nodes", task.memory_policy_nodes.to_list()},
                                 {"cgroup", task.cgroup},
                                 {"variables", task.variables},
                                 {"visible", task.visible}};
  json["numa"] = nlohmann::ordered_json::array();
  for (const auto& node : task.numa) json["numa"].push_back({{"number", node.number}, {"cpus", node.cpus.to_list()}});
  json["openable"] = nlohmann::ordered_json::array();
  for (const auto& gpu : task.openable) {
    nlohmann::ordered_json one = {{"pci_bus_id", gpu.pci_bus_id}, {"name", gpu.name}};
    one["numa_node"] = gpu.numa_node ? nlohmann::ordered_json(*gpu.numa_node) : nlohmann::ordered_json();
    one["cpus"] = gpu.cpus.to_list();
    one["network"] = gpu.network;
    if (!gpu.trouble.empty()) one["trouble"] = gpu.trouble;
    json["openable"].push_back(std::move(one));
  }
  if (!task.hidden_why.empty()) json["hidden_why"] = task.hidden_why;
  if (!task.driver_why.empty()) json["driver_why"] = task.driver_why;
  if (task.gpus_given) json["gpus_given"] = *task.gpus_given;
  if (task.cpus_asked) json["cpus_asked"] = *task.cpus_asked;
  if (const auto& measured = task.measured) {
    json["measured"] = {{"own_bytes_per_second", measured->own},
                        {"own_threads", measured->num_own},
                        {"whole_bytes_per_second", measured->whole},
                        {"whole_threads", measured->num_whole}};
  }
  return json;
}

TaskSeen task_from_json(const nlohmann::json& json) {
  TaskSeen task{.rank = json.at("rank").get<int64_t>(),
                .local_rank = json.at("local_rank").get<int64_t>(),
                .local_world_size = json.at("local_world_size").get<int64_t>(),
                .host = json.at("host").get<std::string>(),
                .cpus = parsed(json, "cpus"),
                .memory_nodes = parsed(json, "memory_nodes"),
                .memory_policy = json.at("memory_policy").get<std::string>(),
                .memory_policy_nodes = parsed(json, "memory_policy_nodes"),
                .visible = json.at("visible").get<std::vector<int64_t>>(),
                .variables = json.at("variables").get<std::vector<std::string>>(),
                .hidden_why = json.value("hidden_why", ""),
                .driver_why = json.value("driver_why", ""),
                .cgroup = json.at("cgroup").get<std::string>()};
  std::erase_if(task.visible, [](int64_t place) { return place < 0; });
  for (const auto& node : json.at("numa")) {
    task.numa.push_back({node.at("number").get<int64_t>(), parsed(node, "cpus")});
  }
  for (const auto& gpu : json.at("openable")) {
    GpuSeen one{.pci_bus_id = gpu.at("pci_bus_id").get<std::string>(),
                .name = gpu.at("name").get<std::string>(),
                .cpus = parsed(gpu, "cpus"),
                .network = gpu.at("network").get<std::string>(),
                .trouble = gpu.value("trouble", "")};
    if (!gpu.at("numa_node").is_null()) one.numa_node = gpu.at("numa_node").get<int64_t>();
    task.openable.push_back(std::move(one));
  }
  if (json.contains("gpus_given")) task.gpus_given = json["gpus_given"].get<int64_t>();
  if (json.contains("cpus_asked")) task.cpus_asked = json["cpus_asked"].get<int64_t>();
  if (json.contains("measured")) {
    const auto& measured = json["measured"];
    task.measured = MemoryMeasured{.own = measured.at("own_bytes_per_second").get<int64_t>(),
                                   .num_own = measured.at("own_threads").get<int64_t>(),
                                   .whole = measured.at("whole_bytes_per_second").get<int64_t>(),
                                   .num_whole = measured.at("whole_threads").get<int64_t>()};
  }
  return task;
}

std::string task_lines(const TaskSeen& task) {
  const auto text = json_line(to_json(task));
  std::string lines;
  for (size_t begin = 0; begin < text.size(); begin += kMostInLine) {
    lines += fmt::format("{}{} {}\n", kTaskLine, task.rank, std::string_view(text).substr(begin, kMostInLine));
  }
  return lines + fmt::format("{}{} {}\n", kTaskLine, task.rank, kTaskEnd);
}

std::vector<TaskSeen> tasks_in(std::string_view output) {
  std::map<std::string_view, std::string> texts;  // by rank
  std::vector<TaskSeen> tasks;
  const auto damaged = [](std::string_view why) {
    return Error(ErrorCode::kDataLoss, "a task of the step printed what is not its description: {}", why);
  };
  for (auto line : lines_of(output)) {
    const auto text_begin = line.find_first_not_of(" 0123456789");  // srun --label writes "0: " before each line
    if (text_begin != line.npos && line.substr(text_begin).starts_with(": ")) line.remove_prefix(text_begin + 2);
    if (!line.starts_with(kTaskLine)) continue;
    line.remove_prefix(kTaskLine.size());
    const auto blank = line.find(' ');
    if (blank == line.npos) throw damaged(printable(line));
    auto& text = texts[line.substr(0, blank)];
    const auto piece = line.substr(blank + 1);
    if (piece != kTaskEnd) {
      text += piece;
      continue;
    }
    try {
      tasks.push_back(task_from_json(nlohmann::json::parse(text)));
    } catch (const nlohmann::json::exception& error) {
      throw damaged(error.what());
    }
    texts.erase(line.substr(0, blank));
  }
  if (!texts.empty()) throw damaged("it has no end");
  std::ranges::sort(tasks, {}, &TaskSeen::rank);
  return tasks;
}

}  // namespace yoke::slurm
