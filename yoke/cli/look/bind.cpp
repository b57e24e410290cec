// `yoke bind`: show which CPUs, memory and threads each rank gets, here or on a different machine.
#include "yoke/launch/plan/bind.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>

#include "yoke/base/error.h"
#include "yoke/base/json.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/value.h"
#include "yoke/device/bus_id.h"
#include "yoke/device/topology/locality.h"
#include "yoke/device/visible_gpus.h"
#include "yoke/launch/torchrun/values.h"

namespace yoke::cli {
namespace {

struct BindArgs {
  std::string topology, sysroot;
  std::string num_ranks;
  std::string mode = "auto";
  std::vector<std::string> chosen;  ///< The words of --devices.
  std::string cpus;
  std::string format = "table";
  bool json = false;
};

/// The CPUs of a machine, and its GPUs in the order in which ranks get them.
struct Machine {
  device::CpuLocality cpus;
  std::vector<device::DeviceLocality> gpus;
};

Machine load_machine(const BindArgs& args, const Environment& environment) {
  if (!args.topology.empty() && !args.sysroot.empty()) {
    refuse("--topology and --sysroot are two machines; give one of them");
  }
  if (!args.topology.empty()) {
    const auto topology = device::load_topology({.xml_file = args.topology});
    return {device::cpu_locality(topology), device::gpu_localities(topology)};
  }
  if (args.sysroot.empty()) return {device::read_cpu_locality(), device::visible_gpus(environment)};
  if (!std::filesystem::is_directory(args.sysroot)) {
    throw Error(ErrorCode::kNotFound, "--sysroot {}: no such folder", args.sysroot);
  }
  // The environment variables of this machine do not apply to the recorded one.
  return {device::read_cpu_locality(args.sysroot), device::visible_gpus({}, args.sysroot)};
}

/// "C1:00.0" -> "0000:c1:00.0"; any other text as it is.
std::string to_bus_id(const std::string& text) { return device::parse_bus_id(text).value_or(text); }

device::DeviceLocality find_gpu(const std::string& name, const Machine& machine, const BindArgs& args) {
  const auto& gpus = machine.gpus;
  const auto number = parse_int(name);
  if (number && *number >= 0 && *number < static_cast<int64_t>(gpus.size())) return gpus[static_cast<size_t>(*number)];
  const auto found = std::ranges::find(gpus, to_bus_id(name), &device::DeviceLocality::pci_bus_id);
  if (found != gpus.end()) return *found;
  // On a machine without the GPU's driver, the PCI bus still lists the GPU.
  if (args.topology.empty() && !number) {
    const std::filesystem::path sysroot = args.sysroot.empty() ? "/" : args.sysroot;
    const auto is_id = [](unsigned char c) { return std::isxdigit(c) != 0 || c == ':' || c == '.'; };
    if (std::ranges::all_of(name, is_id)) {
      if (auto gpu = device::read_device_locality(to_bus_id(name), sysroot)) return *std::move(gpu);
    }
  }
  std::vector<std::string> ids;
  ids.reserve(gpus.size());
  for (const auto& gpu : gpus) ids.push_back(gpu.pci_bus_id);
  throw Error(ErrorCode::kNotFound, "--devices: there is no GPU {}; {}", name,
              ids.empty() ? "no GPU is known here; give PCI bus ids, or none"
                          : fmt::format("there are 0 to {}: {}", ids.size() - 1, fmt::join(ids, ", ")));
}

void choose_gpus(const BindArgs& args, Machine& machine) {
  if (args.chosen.empty()) return;
  const auto list = fmt::format("{}", fmt::join(args.chosen, ","));
  std::vector<device::DeviceLocality> chosen;
  if (list != "none") {
    auto names = split(list, ',');
    if (names.empty()) names.push_back(list);
    for (const auto name : names) chosen.push_back(find_gpu(std::string(name), machine, args));
  }
  machine.gpus = std::move(chosen);
}

int64_t num_ranks(const BindArgs& args, const Machine& machine) {
  const device::CpuCount cpus{.num_cpus = machine.cpus.allowed.size(),
                              .num_numa_nodes = std::ranges::count_if(machine.cpus.nodes, [&](const auto& node) {
                                return node.cpus.intersects(machine.cpus.allowed);
                              })};
  const auto count_gpus = [&] {
    return device::GpuCount{static_cast<int64_t>(machine.gpus.size()), "no GPU is known of the machine"};
  };
  return args.num_ranks.empty() ? launch::default_num_ranks(cpus, count_gpus)
                                : launch::parse_num_ranks(args.num_ranks, cpus, count_gpus);
}

std::string nodes_of(const device::CpuLocality& machine, const CpuSet& cpus) {
  CpuSet nodes;
  for (const auto& node : machine.nodes) {
    if (node.cpus.intersects(cpus)) nodes.add(node.number);
  }
  return nodes.to_list();
}

using Devices = std::vector<std::optional<device::DeviceLocality>>;

std::string to_table(const launch::Binding& binding, const Devices& devices, const device::CpuLocality& machine) {
  Table table{{{"RANK", Align::kRight}, {"DEVICE"}, {"NODE"}, {"CPUS"}, {"MASK"}, {"THREADS", Align::kRight}}, {}};
  for (size_t rank = 0; rank < binding.ranks.size(); ++rank) {
    const auto& one = binding.ranks[rank];
    table.rows.push_back({std::to_string(rank), devices[rank] ? devices[rank]->pci_bus_id : "-",
                          nodes_of(machine, one.cpus), one.cpus.to_list(), one.cpus.to_mask(),
                          std::to_string(one.num_threads)});
  }
  return to_text(table, kUnlimitedWidth);  // users copy the CPU masks, so no mask may be cut off
}

std::string to_json(const launch::Binding& binding, const Devices& devices, const device::CpuLocality& machine) {
  auto ranks = Json::array();
  for (size_t rank = 0; rank < binding.ranks.size(); ++rank) {
    const auto& one = binding.ranks[rank];
    ranks.push_back({{"rank", rank},
                     {"device", devices[rank] ? Json(devices[rank]->pci_bus_id) : Json()},
                     {"numa_nodes", nodes_of(machine, one.cpus)},
                     {"cpus", one.cpus.to_list()},
                     {"mask", one.cpus.to_mask()},
                     {"memory_nodes", one.memory_nodes.empty() ? Json() : Json(one.memory_nodes.to_list())},
                     {"num_threads", one.num_threads}});
  }
  const Json json = {{"is_bound", binding.is_bound},
                     {"reason", binding.reason},
                     {"warnings", binding.warnings},
                     {"allowed_cpus", machine.allowed.to_list()},
                     {"ranks", ranks}};
  return json_page(json);
}

std::string to_slurm(const launch::Binding& binding) {
  std::vector<std::string> masks;
  for (const auto& rank : binding.ranks) masks.push_back(rank.cpus.to_mask());
  return fmt::format("--cpu-bind=mask_cpu:{}\n", fmt::join(masks, ","));
}

int run_bind(const BindArgs& args, Context& context) {
  const auto mode = launch::parse_bind_mode(args.mode);
  auto machine = load_machine(args, context.environment);
  if (!args.cpus.empty()) {
    const auto allowed = CpuSet::parse_list(args.cpus);
    if (!allowed || allowed->empty()) refuse("--cpus {}: give a list of CPUs as 1-7,9-15", args.cpus);
    machine.cpus = device::restrict(std::move(machine.cpus), *allowed);
  }
  choose_gpus(args, machine);

  Devices devices(static_cast<size_t>(num_ranks(args, machine)));
  for (size_t rank = 0; rank < devices.size() && !machine.gpus.empty(); ++rank) {
    devices[rank] = machine.gpus[rank % machine.gpus.size()];
  }
  const auto binding = launch::plan_binding(mode, machine.cpus, devices);
  if (args.json) {
    context.out << to_json(binding, devices, machine.cpus);
    return kExitOk;
  }
  context.out << (args.format == "mask" ? to_slurm(binding) : to_table(binding, devices, machine.cpus));
  context.out.flush();
  std::cerr << "yoke bind: " << binding.reason << '\n';
  for (const auto& warning : binding.warnings) std::cerr << "yoke bind: warning: " << warning << '\n';
  return kExitOk;
}

}  // namespace

void add_bind(CLI::App& cmd, Context& context) {
  auto& args = add_args<BindArgs>(cmd, context, run_bind);
  add_value(cmd, "-n,--nproc-per-node", args.num_ranks, "auto|gpu|cpu|N",
            "Ranks, as for `yoke run`; without it one for each GPU, or for each NUMA node");
  add_value(cmd, "--bind", args.mode, "auto|none|node|socket|cache|mask:LIST|cpus:LIST",
            "Where a rank gets its CPUs: by auto, within one NUMA node, socket or last-level cache, everywhere, "
            "or given for each rank as mask:0xfe,0xfe00 or cpus:1-7,9-15")
      ->capture_default_str();
  add_device_choice(
      cmd, args.chosen, "--devices",
      "GPUs of rank 0, 1...: numbers or PCI bus ids between commas, or none; otherwise all that are visible. "
      "More ranks than GPUs begin again with the first",
      ChoiceForm::kOneWord);
  add_value(cmd, "--cpus", args.cpus, "LIST", "Only these may be used, for example those that a job got");
  add_value(cmd, "--topology", args.topology, "FILE", "Another machine's, written there by `lstopo FILE.xml`");
  add_value(cmd, "--sysroot", args.sysroot, "DIR", "Read proc and sys below DIR");
  add_value(cmd, "--format", args.format, "table|mask", "mask: as an option of Slurm's srun")->capture_default_str();
  cmd.add_flag("--json", args.json, "Print JSON");
  cmd.footer(
      examples("  yoke bind                                     what `yoke run` would do here\n"
               "  yoke bind -n 4 --devices none                 four ranks that compute on CPUs\n"
               "  yoke bind --topology lumi.xml -n 8            on a machine that is not here\n"
               "  yoke bind --topology lumi.xml -n 8 --cpus 1-7,9-15,17-23,25-31,33-39,41-47,49-55,57-63\n"
               "  srun $(yoke bind -n 8 --format mask) ./train  let Slurm bind"));
}

}  // namespace yoke::cli
