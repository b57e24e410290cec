// `yoke alloc`: hold nodes of Slurm, and start one job after another in them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/json_text.h"
#include "yoke/base/moment.h"
#include "yoke/base/quantity.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/help/values.h"
#include "yoke/cli/options/value.h"
#include "yoke/cluster/held.h"
#include "yoke/cluster/request.h"
#include "yoke/slurm/job/holding.h"
#include "yoke/slurm/script/plan.h"
#include "yoke/slurm/words/options.h"

namespace yoke::cli {
namespace {

using cluster::Allocation;
using std::chrono::system_clock;

struct AllocArgs {
  slurm::HoldingRequest request;
  std::string time, wait, remote_yoke;
  bool list = false, json = false;
};

/// Slurm reads a plain number as minutes, and other commands of yoke read it as seconds, so it is refused.
std::string alloc_time_of(const std::string& text) {
  if (!parse_int(text)) return text.empty() ? "" : slurm::slurm_time(text);
  throw Error(ErrorCode::kInvalidArgument, "--time {}: give a time with its unit, such as 30m, 4h or 1d12h", text);
}

void check_sbatch_options(const std::vector<std::string>& more) {
  constexpr auto kRefused = std::to_array<std::string_view>(
      {"array", "clusters", "help", "parsable", "requeue", "test-only", "usage", "version", "wait", "wrap"});
  // The parser ends at a word that is no option, which may be the value of an option that it does not know.
  for (size_t i = 0; i < more.size();) {
    const auto parsed = parse_options(slurm::check::kSbatch, slurm::check::option_words(std::span(more).subspan(i)));
    for (const auto& option : parsed.given) {
      if (std::ranges::find(kRefused, option.spec->name) == kRefused.end()) continue;
      throw Error(ErrorCode::kInvalidArgument, "{} cannot be used for an allocation that is held", option.written);
    }
    i += parsed.num_used + 1;
  }
  if (!more.empty() && !more.front().starts_with('-')) {
    throw Error(ErrorCode::kInvalidArgument,
                "unexpected argument: {}; options of sbatch follow after --, as in -- --constraint=a100", more.front());
  }
}

std::string resources_text(const Allocation& allocation) {
  const auto& nodes = allocation.nodes;
  const auto is_same = [&](const auto& node) {
    return node.num_gpus == nodes[0].num_gpus && node.num_cpus == nodes[0].num_cpus;
  };
  if (nodes[0].num_cpus == 0 || !std::ranges::all_of(nodes, is_same)) return "";
  const auto gpus = nodes[0].num_gpus == 0 ? std::string() : fmt::format("{} and ", counted(nodes[0].num_gpus, "GPU"));
  return fmt::format(",{} with {}{}", nodes.size() == 1 ? "" : " each", gpus, counted(nodes[0].num_cpus, "CPU"));
}

std::string node_names_of(const Allocation& allocation) {
  std::vector<std::string> names;
  for (const auto& node : allocation.nodes) names.push_back(node.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string held_text(const Allocation& allocation) {
  const auto& job = allocation.job;
  std::string text =
      fmt::format("allocation {} is held: {}{}", job, node_names_of(allocation), resources_text(allocation));
  if (allocation.until != 0) {
    text += fmt::format(", until {} (in {})", moment_text(system_clock::from_time_t(allocation.until)),
                        cluster::left_text(allocation.until));
  }
  return text + fmt::format(
                    "\n  yoke run --in {0} train.py          ranks on its nodes, again and again"
                    "\n  yoke exec --in {0} -- nvidia-smi    a command on each node"
                    "\n  yoke shell --in {0}                 a shell on {1}"
                    "\n  yoke stop {0}                       give it back\n",
                    job, allocation.nodes[0].name);
}

int request_allocation(AllocArgs args, Context& context) {
  check_sbatch_options(context.rest);
  auto& request = args.request;
  if (!request.name.empty()) cluster::check_allocation_name(request.name);
  request.time = alloc_time_of(args.time);
  request.more = context.rest;
  std::optional<std::chrono::seconds> limit;
  if (!args.wait.empty()) {
    limit = parse_length(args.wait);
    if (!limit) throw Error(ErrorCode::kInvalidArgument, "--wait {}: give a time such as 90s, 30m or 2h", args.wait);
  }
  const auto yoke = args.remote_yoke.empty() ? context.installation.executable.string() : args.remote_yoke;
  cluster::RequestedAllocation requested({.request = request, .yoke = yoke, .limit = limit, .tell = teller(context)},
                                         context.environment);
  const auto allocation = requested.wait();
  if (!allocation) return 128 + requested.signal();
  context.out << (args.json ? json_page(to_json(*allocation)) : held_text(*allocation)) << std::flush;
  if (context.out) return kExitOk;
  const auto why = system_error(error_of(context.out), "writing the output");
  context.out.clear();
  requested.cancel();
  throw Error(why.code(), "{}; allocation {} is given back", why.what(), allocation->job);
}

int list_held(const AllocArgs& args, Context& context) {
  auto held = cluster::held_allocations(context.environment);
  if (args.json) {
    auto json = nlohmann::ordered_json::array();
    for (const auto& one : held) {
      json.push_back(to_json(one.allocation));
      json.back()["state"] = one.state;
      json.back()["reason"] = one.reason.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(one.reason);
    }
    print_json(nlohmann::ordered_json({{"allocations", json}}), context);
    return kExitOk;
  }
  if (held.empty()) {
    context.out << "you hold no allocation\n";
    return kExitOk;
  }
  Table table{.columns = {{"job", Align::kRight}, {"name"}, {"state"}, {"left", Align::kRight}, {"nodes"}}};
  for (const auto& [allocation, state, reason] : held) {
    table.rows.push_back({allocation.job, allocation.name.empty() ? "-" : allocation.name,
                          reason.empty() ? state : fmt::format("{}: {}", state, reason),
                          allocation.until == 0 ? "-" : cluster::left_text(allocation.until),
                          allocation.nodes.empty() ? "-" : node_names_of(allocation)});
  }
  context.out << to_text(table, table_width(context));
  return kExitOk;
}

}  // namespace

void add_alloc(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<AllocArgs>();  // CLI11 keeps references to it; the callback owns it
  auto& request_args = args->request;
  add_value(cmd, "-N,--nodes", request_args.num_nodes, "N", "How many nodes")
      ->check(in_range(1, 65'536, "nodes"))
      ->capture_default_str();
  add_value(cmd, "--gpus-per-node", request_args.gpus_per_node, "COUNT",
            "Devices on each node: 4, or a type such as a100:4");
  add_value(cmd, "-c,--cpus-per-node", request_args.cpus_per_node, "N",
            "CPUs on each node; unless given, what Slurm gives, often one core or the whole node")
      ->check(in_range(1, 65'536, "CPUs"));
  add_value(cmd, "-t,--time", args->time, "TIME",
            "How long: 30m, 4h, 1d12h, or as Slurm writes it; the partition's default");
  add_value(cmd, "-p,--partition", request_args.partition, "NAME", "Partition (queue)");
  add_value(cmd, "-A,--account", request_args.account, "NAME", "Account that pays");
  add_value(cmd, "--name", request_args.name, "TEXT", "A name by which --in and `yoke stop` find it");
  add_value(cmd, "--wait", args->wait, "TIME", "Cancel the request if it has not started after this time");
  add_value(cmd, "--remote-yoke", args->remote_yoke, "PATH",
            "Path of yoke on the nodes, if it differs from the path here");
  cmd.add_flag("--list", args->list, "List your allocations, with the time that is left");
  cmd.add_flag("--json", args->json, "Print JSON");
  add_program(cmd, "OPTIONS", "After --: further options of sbatch");
  cmd.footer(examples(
      "  yoke alloc -N 2 --gpus-per-node 4 --time 1h    hold two nodes for an hour\n"
      "  yoke run --in last train.py                    start a job there, in milliseconds; again and again\n"
      "  yoke exec --in last -- nvidia-smi              a command on each node\n"
      "  yoke shell --in last n2                        a shell on node n2\n"
      "  yoke stop 4711                                 give it back (4711: the job's id)\n"
      "  yoke alloc -N 1 --time 30m --name debug --wait 10m -- --constraint=a100\n"
      "  yoke alloc --list                              what you hold, and until when\n"
      "\n"
      "Exit status: 0 when the allocation is held; 124 if it did not start within --wait, 130 after Ctrl-C: then the\n"
      "request is cancelled; 69 if Slurm refuses it, 75 if Slurm cannot be reached, 66 if it is not installed here."));
  cmd.callback([args, &context] {
    context.exit_code = args->list ? list_held(*args, context) : request_allocation(*args, context);
  });
}

}  // namespace yoke::cli
