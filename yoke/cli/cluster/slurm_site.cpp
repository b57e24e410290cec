// `yoke slurm site`: what batch scripts must know of a cluster: list, show and detect descriptions.
#include <fmt/format.h>

#include <filesystem>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json.h"
#include "yoke/base/table.h"
#include "yoke/cli/cluster/slurm.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/options/value.h"
#include "yoke/device/topology/locality.h"
#include "yoke/slurm/site/find.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders_of(const Context& context) {
  return slurm::site_folders(context.environment, context.installation.share);
}

Json to_json(const slurm::FoundSite& found) {
  const auto& site = found.site;
  const auto gpu_json = [](const auto& gpu) -> Json {
    return {{"cpus", gpu.cpus.to_list()},
            {"mask", gpu.cpus.to_mask()},
            {"numa_node", or_null(gpu.numa_node)},
            {"pci", gpu.pci}};
  };
  return {{"name", site.name},
          {"summary", site.summary},
          {"file", found.file.empty() ? Json() : Json(found.file)},
          {"why", found.why.empty() ? Json() : Json(found.why)},
          {"checked", site.checked},
          {"sources", site.sources},
          {"clusters", site.clusters},
          {"gpus_per_node", site.num_gpus},
          {"cpus", site.num_cpus ? Json(*site.num_cpus) : Json()},
          {"cpus_per_gpu", site.cpus_per_gpu ? Json(*site.cpus_per_gpu) : Json()},
          {"gpus", json_list(site.gpus, gpu_json)}};
}

int list_all_sites(bool json, Context& context) {
  std::vector<std::string> problems;
  const auto sites = slurm::list_sites(folders_of(context), problems);
  for (const auto& problem : problems) teller(context)(Told::kNews, "left out: " + problem);
  if (json) {
    print_json({{"sites", json_list(sites, [](const auto& one) { return to_json(one); })}}, context);
    return kExitOk;
  }
  Table table{.columns = {{.title = "SITE"}, {.title = "NODES", .shrinks_to = 20}, {.title = "FILE", .drop_order = 1}}};
  for (const auto& one : sites) table.rows.push_back({one.site.name, one.site.summary, one.file});
  context.out << to_text(table, table_width(context));
  return kExitOk;
}

int show_site(const std::string& name, bool json, Context& context) {
  std::vector<std::string> notes;
  const auto found = name.empty() ? slurm::choose_site_here("", "", context.environment, folders_of(context), notes)
                                  : slurm::find_site(name, folders_of(context));
  for (const auto& note : notes) teller(context)(Told::kNews, note);
  if (json) {
    print_json(to_json(found), context);
    return kExitOk;
  }
  if (!found.file.empty()) {
    context.out << fmt::format("# {}{}\n", found.file, name.empty() ? ", chosen by " + found.why : "");
    context.out << read_file(found.file);
  } else {
    context.out << fmt::format("# no file; chosen by {}\n{}", found.why, slurm::to_toml(found.site));
  }
  return kExitOk;
}

struct DetectArgs {
  std::string partition, topology, name, output;
};

int detect_site_here(const DetectArgs& args, Context& context) {
  std::vector<std::string> notes;
  const auto config = slurm::ask_config(context.environment);
  slurm::Site site;
  if (config) {
    site = slurm::ask_site(*config, args.partition, context.environment, notes);
  } else if (args.topology.empty()) {
    throw Error(ErrorCode::kNotFound,
                "there is no Slurm here (no scontrol in PATH); run this on a login node, or describe a node by "
                "--topology FILE.xml, which `lstopo FILE.xml` writes on it");
  } else {
    site.name = fs::path(args.topology).stem().string();
    site.checked = "detected from a topology";
  }
  if (!args.name.empty()) site.name = args.name;
  if (!args.topology.empty()) {
    const auto topology = device::load_topology({.xml_file = args.topology});
    slurm::add_topology(site, device::cpu_locality(topology), device::gpu_localities(topology));
    site.checked += fmt::format(", and from the topology {}", fs::path(args.topology).filename().string());
  } else if (site.num_gpus > 0) {
    notes.emplace_back(
        "Slurm does not say which CPUs are near which GPU: `srun -N1 --exclusive lstopo node.xml`, and then "
        "give --topology node.xml");
  }
  const auto text =
      fmt::format("# Written by `yoke slurm site detect`. docs/slurm.md describes the keys.\n{}", slurm::to_toml(site));
  slurm::parse_site(text, "the detected site");
  for (const auto& note : notes) teller(context)(Told::kNews, note);
  if (args.output.empty() || args.output == "-") {
    context.out << text;
    return kExitOk;
  }
  if (fs::exists(args.output)) {
    throw Error(ErrorCode::kFailedPrecondition, "{} exists; give another file, or remove it", args.output);
  }
  replace_file(args.output, text);
  return kExitOk;
}

struct SiteArgs {
  std::string action, site;
  bool json = false;
  DetectArgs detect;
};

int run_site(const SiteArgs& args, Context& context) {
  const auto& detect = args.detect;
  if (args.action != "show" && !args.site.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "{}: only show takes the name of a site", args.site);
  }
  const bool has_detection =
      !detect.partition.empty() || !detect.topology.empty() || !detect.name.empty() || !detect.output.empty();
  if (args.action == "detect" ? args.json : has_detection) {
    throw Error(
        ErrorCode::kInvalidArgument, "{}",
        args.json ? "--json is for list and show" : "--partition, --topology, --name and --output are for detect");
  }
  if (args.action == "list") return list_all_sites(args.json, context);
  return args.action == "show" ? show_site(args.site, args.json, context) : detect_site_here(detect, context);
}

}  // namespace

void add_slurm_site(CLI::App& cmd, Context& context) {
  auto& args = add_args<SiteArgs>(cmd, context, run_site);
  add_value(cmd, "ACTION", args.action, "list|show|detect",
            "list: all sites; show: a site's file; detect: write a file, by asking Slurm")
      ->required();
  add_value(cmd, "SITE", args.site, "", "With show: a site by name or file; unless given, the one that is chosen here");
  cmd.add_flag("--json", args.json, "With list and show: print JSON, with the CPU mask of each GPU");
  add_value(cmd, "-p,--partition", args.detect.partition, "NAME", "With detect: describe the nodes of this partition");
  add_value(cmd, "--topology", args.detect.topology, "FILE",
            "With detect: take the CPUs near each GPU from what lstopo wrote on a node");
  add_value(cmd, "--name", args.detect.name, "NAME", "With detect: the site's name; unless given, the cluster's");
  add_value(cmd, "-o,--output", args.detect.output, "FILE",
            "With detect: write this file, which must be new, instead of standard output");
  cmd.footer(
      examples("  yoke slurm site list\n"
               "  yoke slurm site show                 the one that is chosen here, and why\n"
               "  yoke slurm site show lumi-g --json\n"
               "  mkdir -p ~/.config/yoke/sites\n"
               "  srun -N1 --exclusive lstopo node.xml\n"
               "  yoke slurm site detect -p gpu --topology node.xml -o ~/.config/yoke/sites/mine.toml"));
}

}  // namespace yoke::cli
