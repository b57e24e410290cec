// `yoke topo`: show how the devices, network cards and processors of a machine are connected.

#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/value.h"
#include "yoke/view/devices.h"
#include "yoke/view/topology.h"

namespace yoke::cli {
namespace {

struct TopoArgs {
  DeviceOptions device;
  bool json = false;
  std::string topology;
  std::string svg;
};

void print(const device::Topology& topology, const std::vector<device::Device>& devices, const TopoArgs& args,
           Context& context) {
  const auto matrix = link_matrix(topology, devices);
  if (args.svg == "-") {
    context.out << view::topology_svg(topology, matrix);
  } else if (!args.svg.empty()) {
    std::ofstream file(args.svg);
    file << view::topology_svg(topology, matrix);
    file.close();
    if (!file) throw system_error(errno, "writing " + args.svg);
  }
  if (args.json) {
    print_json(view::topology_json(topology, matrix), context);
  } else if (args.svg.empty()) {
    context.out << view::topology_text(topology, matrix, output_width(context));
  }
}

int run_topo(const TopoArgs& args, Context& context) {
  if (args.svg == "-" && args.json) refuse("--svg - and --json both write to standard output; give a file to --svg");
  if (!args.topology.empty() && !args.device.sysroot.empty()) {
    refuse("--topology and --sysroot are two machines; give one of them");
  }
  if (!args.topology.empty() && !args.device.vendor.empty()) {
    refuse("--vendor chooses what is read here, and --topology is a file");
  }
  device::Topology topology;
  // A recording may come from a different machine, so this machine's processors are not shown with it.
  if (!args.topology.empty() || args.device.replay.empty()) {
    device::TopologyOptions options{.xml_file = args.topology};
    if (!args.device.sysroot.empty()) options.sysroot = args.device.sysroot;
    topology = load_topology(options);
  }
  if (!args.topology.empty() && args.device.replay.empty()) {
    const auto gpus = devices_of(topology);
    print(topology, gpus, args, context);
    if (gpus.size() > 1) {
      context.out.flush();
      std::cerr
          << "yoke topo: a topology file has no NVLink and no Infinity Fabric; --replay adds those of a recording "
             "made there\n";
    }
    return kExitOk;
  }
  return with_source(args.device, context, [&](device::Source& source) {
    const auto snapshot = source.sample({.processes = false, .links = true});
    if (!args.device.vendor.empty()) {  // GPUs of other vendors were not queried
      std::erase_if(topology.devices, [&](const device::PciDevice& known) {
        return known.kind == device::PciDevice::Kind::kGpu &&
               std::none_of(snapshot.devices.begin(), snapshot.devices.end(),
                            [&](const device::Device& device) { return device.facts.pci_bus_id == known.pci_bus_id; });
      });
    }
    print(topology, snapshot.devices, args, context);
    context.out.flush();
    for (const auto& note : view::device_notes(snapshot)) std::cerr << "yoke topo: " << note << '\n';
    return kExitOk;
  });
}

}  // namespace

void add_topo(CLI::App& cmd, Context& context) {
  auto& args = add_args<TopoArgs>(cmd, context, run_topo);
  cmd.add_flag("--json", args.json, "Print JSON");
  add_value(cmd, "--svg", args.svg, "FILE", "Write a drawing to FILE instead, - for standard output");
  add_value(cmd, "--topology", args.topology, "FILE", "Another machine's, written there by `lstopo FILE.xml`");
  add_device_options(cmd, args.device);
  cmd.footer(
      examples("  yoke topo                                the matrix of links, and what is beside which NUMA node\n"
               "  yoke topo --svg machine.svg              a drawing for a page about the machine\n"
               "  yoke topo --topology lumi.xml            of a machine that is not here\n"
               "  yoke topo --json | jq '.connections[] | select(.kind == \"NV\")'"));
}

}  // namespace yoke::cli
