#include "yoke/launch/torchrun/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <random>
#include <set>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/text.h"
#include "yoke/contract/rank_env.h"
#include "yoke/launch/plan/plan.h"
#include "yoke/launch/torchrun/spec.h"
#include "yoke/launch/torchrun/values.h"

namespace yoke::launch {
namespace {

constexpr uint16_t kTorchrunPort = 29'400;        // default of its c10d rendezvous
constexpr uint16_t kTorchrunMasterPort = 29'500;  // default of its static rendezvous

struct Endpoint {
  std::string host;
  uint16_t port = 0;  ///< 0 if the text has no port.
};

/// Parses "a:1234", "a", "[::1]:1234" or "::1".
Endpoint parse_endpoint(const std::string& text) {
  Endpoint result{text, 0};
  const bool is_ipv6_alone = !text.starts_with('[') && std::ranges::count(text, ':') > 1;
  const auto colon = text.find(':', text.starts_with('[') ? text.find(']') : 0);
  if (colon != text.npos && !is_ipv6_alone) {
    result.host = text.substr(0, colon);
    const auto port = to_number(text.substr(colon + 1), "--rdzv-endpoint's port");
    if (port < 0 || port > 65'535) {
      throw Error(ErrorCode::kInvalidArgument, "--rdzv-endpoint {}: {} is not a port", text, port);
    }
    result.port = static_cast<uint16_t>(port);
  }
  if (result.host.starts_with('[') && result.host.ends_with(']')) {
    result.host = result.host.substr(1, result.host.size() - 2);
  }
  if (result.host.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "--rdzv-endpoint {}: give HOST:PORT", text);
  }
  return result;
}

/// Parses "MIN:MAX" or "N".
void set_number(const std::string& text, MembershipOptions& membership) {
  const auto colon = text.find(':');
  membership.min_nodes = to_number(text.substr(0, colon), "--nnodes");
  membership.max_nodes = colon == text.npos ? membership.min_nodes : to_number(text.substr(colon + 1), "--nnodes");
  if (membership.min_nodes >= 1 && membership.max_nodes >= membership.min_nodes) return;
  throw Error(ErrorCode::kInvalidArgument, "--nnodes {}: give N, or MIN:MAX with 1 <= MIN <= MAX", text);
}

double to_seconds(const std::string& text, const std::string& key) {
  try {
    size_t end = 0;
    const double seconds = std::stod(text, &end);
    if (end == text.size() && seconds >= 0 && seconds <= 1e6) return seconds;
  } catch (const std::exception&) {  // reported below
  }
  throw Error(ErrorCode::kInvalidArgument, "--rdzv-conf: {}={}: give 0 to 1000000 seconds", key, text);
}

void read_conf(const std::string& text, NodesSpec& nodes) {
  for (const auto pair : split(text, ',')) {
    const auto equals = pair.find('=');
    const std::string key(pair.substr(0, equals)), value(equals == pair.npos ? "" : pair.substr(equals + 1));
    if (equals == pair.npos) {
      throw Error(ErrorCode::kInvalidArgument, "--rdzv-conf {}: give KEY=VALUE", pair);
    }
    if (key == "join_timeout" || key == "timeout") nodes.membership.join_timeout = to_time(to_seconds(value, key));
    if (key == "last_call_timeout") nodes.membership.last_call = to_time(to_seconds(value, key));
    if (key == "is_host") nodes.is_head = value == "1" || value == "true" || value == "True" || value == "t";
  }
}

/// `num_nodes`: those that have ranks, and the spares.
void check_spares(const RunOptions& options, int64_t num_nodes) {
  if (options.spares < num_nodes) return;
  throw Error(ErrorCode::kInvalidArgument,
              "--spares {}: the job has {}, and one of them at least must have ranks; give fewer spares, or more hosts",
              options.spares, counted(num_nodes, "host"));
}

/// If the numbers of ranks are in the command line: with -n gpu only a host itself knows its own.
void check_ranks_of_spares(const RunOptions& options, const std::vector<Host>& hosts) {
  if (options.spares == 0 || options.replace == 0) return;
  const auto usual = parse_int(options.nproc_per_node);
  const auto first_spare = std::ssize(hosts) - options.spares;
  std::set<int64_t> of_hosts;
  for (int64_t i = 0; i < std::ssize(hosts); ++i) {
    const auto& host = hosts[static_cast<size_t>(i)];
    const auto num_ranks = host.num_ranks ? host.num_ranks : usual;
    if (!num_ranks && i < first_spare) return;
    if (num_ranks && i < first_spare) of_hosts.insert(*num_ranks);
    const auto why = num_ranks && i >= first_spare ? why_no_spare(*num_ranks, of_hosts) : "";
    if (!why.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "--spares {}: the spare host {} {}", options.spares, host.name, why);
    }
  }
}

void add_hosts(const RunOptions& options, const Surroundings& surroundings, NodesSpec& nodes) {
  auto listed = surroundings.list_hosts();
  nodes.hosts = std::move(listed.hosts);
  nodes.allocation = std::move(listed.allocation);
  const auto num_listed = static_cast<int64_t>(nodes.hosts.size()), num_hosts = num_listed - options.spares;
  check_spares(options, num_listed);
  check_ranks_of_spares(options, nodes.hosts);
  nodes.membership.min_nodes = nodes.membership.max_nodes = num_hosts;
  if (options.nnodes.empty()) return;
  set_number(options.nnodes, nodes.membership);
  const auto* const besides = options.spares > 0 ? " besides the spares" : "";
  if (nodes.membership.max_nodes > num_hosts) {
    throw Error(ErrorCode::kInvalidArgument, "--nnodes {} asks for more nodes than the {} hosts that are listed{}",
                options.nnodes, num_hosts, besides);
  }
  if (nodes.membership.max_nodes < num_hosts) {  // otherwise only the hosts that answer first would take part
    throw Error(ErrorCode::kInvalidArgument,
                "--nnodes {} asks for fewer nodes than the {} hosts that are listed{}; list only those to use",
                options.nnodes, num_hosts, besides);
  }
}

void check_alone(const RunOptions& options) {
  const bool contradicts = options.standalone || options.node_rank || !options.rdzv_endpoint.empty();
  if (!contradicts) return;
  throw Error(ErrorCode::kInvalidArgument,
              "--hosts and --in start the nodes themselves; --standalone, --node-rank and --rdzv-endpoint are for "
              "nodes that are "
              "started one by one");
}

/// Whether the nodes are listed, and the head starts an agent on each.
bool has_hosts(const RunOptions& options) {
  return !options.hosts.empty() || !options.hostfile.empty() || !options.allocation.empty();
}

/// Reads the place of this node from the variables of srun or mpirun, if one of them started a launcher on each node
/// and no option names the nodes.
std::optional<RankEnv> read_outer_launcher(const RunOptions& options, const Environment& environment) {
  if (has_hosts(options) || !options.nnodes.empty() || !options.rdzv_endpoint.empty() || options.standalone) {
    return std::nullopt;
  }
  auto own = environment;  // without the rank variables of an outer torchrun or yoke
  for (const auto* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) own.erase(name);
  const bool is_several = own.find_int("SLURM_STEP_NUM_TASKS").value_or(1) > 1 ||
                          own.find_int("OMPI_COMM_WORLD_SIZE").value_or(1) > 1 ||
                          own.find_int("PMI_SIZE").value_or(1) > 1 || own.find_int("FLUX_JOB_SIZE").value_or(1) > 1;
  if (!is_several) return std::nullopt;
  if (const auto address = environment.find("MASTER_ADDR")) own.set("MASTER_ADDR", *address);
  return read_rank_env(own);
}

void add_nodes_of(const RankEnv& place, const RunOptions& options, NodesSpec& nodes) {
  // If another node has several launchers, they end at once, and this node would wait for them.
  if (place.local_world_size != 1 || (place.source == RankSource::kSlurm && place.world_size != place.num_nodes)) {
    throw Error(ErrorCode::kInvalidArgument,
                "yoke run was started {} times on {}, and one launcher cannot give the CPUs and devices of its "
                "own task to the ranks of others; start it once on each (srun -n \"$SLURM_JOB_NUM_NODES\" "
                "--ntasks-per-node=1, mpirun --map-by ppr:1:node; in a batch script of Slurm, `yoke run` without srun "
                "does so), or let srun start the program itself",
                place.local_world_size != 1 ? place.local_world_size : place.world_size,
                place.local_world_size != 1 ? "this node" : fmt::format("the {} nodes", place.num_nodes));
  }
  check_spares(options, place.world_size);
  nodes.membership.min_nodes = nodes.membership.max_nodes = place.world_size - options.spares;
  nodes.node_rank = place.rank;
  nodes.is_head = place.rank == 0;
  nodes.endpoint_host = place.master_addr;
  nodes.endpoint_port = place.master_port != 0 ? place.master_port : kTorchrunPort;
}

/// Adds the endpoint for several nodes that are started with the same command.
void add_endpoint(const RunOptions& options, NodesSpec& nodes) {
  if (options.node_rank && *options.node_rank >= nodes.membership.max_nodes + options.spares) {
    throw Error(ErrorCode::kInvalidArgument, "--node-rank {}: nodes are numbered from 0, and the job has {}",
                *options.node_rank, nodes.membership.max_nodes + options.spares);
  }
  nodes.node_rank = options.node_rank;
  if (options.node_rank && !nodes.is_head) nodes.is_head = *options.node_rank == 0;
  if (!options.rdzv_endpoint.empty()) {
    const auto endpoint = parse_endpoint(options.rdzv_endpoint);
    nodes.endpoint_host = endpoint.host;
    nodes.endpoint_port = endpoint.port != 0 ? endpoint.port : kTorchrunPort;
  } else if (!options.master_addr.empty()) {  // torchrun's static rendezvous
    nodes.endpoint_host = options.master_addr;
    nodes.endpoint_port = options.master_port != 0 ? options.master_port : kTorchrunMasterPort;
  } else {
    throw Error(
        ErrorCode::kInvalidArgument,
        "--nnodes {}: the other nodes need an address of the first node; give --rdzv-endpoint HOST:PORT on all nodes",
        options.nnodes);
  }
}

void check_backend(const std::string& name) {
  if (name == "static" || name == "c10d") return;
  throw Error(ErrorCode::kInvalidArgument,
              "--rdzv-backend {}: the nodes of yoke meet at the first node and not at another server; give static or "
              "c10d, and as --rdzv-endpoint the first node",
              name);
}

NodesSpec to_nodes(const RunOptions& options, const Surroundings& surroundings, const std::optional<RankEnv>& place) {
  NodesSpec nodes;
  nodes.silence = to_time(options.heartbeat_timeout_seconds);
  nodes.membership.num_spares = options.spares;
  read_conf(options.rdzv_conf, nodes);
  if (has_hosts(options)) {
    check_alone(options);
    add_hosts(options, surroundings, nodes);
    if (!options.master_addr.empty()) nodes.master_addr = options.master_addr;
    return nodes;
  }
  if (!options.nnodes.empty()) set_number(options.nnodes, nodes.membership);
  const bool has_number = !options.nnodes.empty() && nodes.is_several();
  if (has_number) {
    if (options.standalone) {
      throw Error(ErrorCode::kInvalidArgument, "--standalone is a job of one node, but --nnodes is {}", options.nnodes);
    }
    add_endpoint(options, nodes);
  } else if (place) {
    add_nodes_of(*place, options, nodes);
  } else {
    check_spares(options, 1);
  }
  if (nodes.is_several()) {
    nodes.local_addr = options.local_addr;
    nodes.token = surroundings.job_token();
    if (!options.master_addr.empty() && !options.rdzv_endpoint.empty()) nodes.master_addr = options.master_addr;
  } else if (options.node_rank.value_or(0) != 0) {
    throw Error(ErrorCode::kInvalidArgument, "--node-rank {}: the job has one node, whose rank is 0",
                *options.node_rank);
  }
  return nodes;
}

/// Sets where the ranks' TCPStore is, as far as the nodes determine it.
void place_store(const RunOptions& options, const NodesSpec& nodes, LaunchSpec& spec) {
  if (nodes.is_several()) {
    // Nodes use the port of the static rendezvous to join, so the store needs a different port.
    const bool is_static = nodes.hosts.empty() && !options.nnodes.empty() && options.rdzv_endpoint.empty();
    if (is_static) spec.master_port.reset();
    return;
  }
  // With one node, rank 0 serves the ranks' TCPStore at the endpoint, whatever the rendezvous backend is.
  if (options.rdzv_endpoint.empty() || options.standalone) return;
  const auto endpoint = parse_endpoint(options.rdzv_endpoint);
  spec.master_addr = endpoint.host;
  spec.master_addr_option = "--rdzv-endpoint";
  if (endpoint.port == 0) return;
  spec.master_port = endpoint.port;
  spec.master_port_option = "--rdzv-endpoint";
}

/// Whether the job is standalone although no option says so: it has one node, and neither an endpoint nor a port.
/// Source  torch/distributed/run.py of torch 2.12 and later, run(); there --rdzv-id has no effect on such a job.
bool is_standalone_by_itself(const RunOptions& options, const NodesSpec& nodes) {
  return !nodes.is_several() && options.rdzv_endpoint.empty() && options.master_port == 0 &&
         options.rdzv_backend == "static";
}

bool starts_python(const std::string& program) {
  return std::filesystem::path(program).filename().string().starts_with("python");
}

/// Decides whether ranks may be replaced (LaunchSpec::replacements).
void decide_on_replacements(const RunOptions& options, const Surroundings& surroundings, Launch& launch) {
  auto& spec = launch.spec;
  if (options.replace == 0) return;
  const bool is_several = launch.nodes.is_several() || surroundings.is_agent;
  if (spec.argv != surroundings.program || starts_python(spec.argv.front())) {
    spec.no_replacement = "the program is in Python, whose ranks cannot form their groups again";
  } else if (!launcher_serves_store(spec, spec.num_ranks, is_several)) {
    spec.no_replacement = !is_several && spec.num_ranks == 1
                              ? "the job has one rank, whose state no other rank has"
                              : "rank 0 serves the ranks' store (TORCH_DISABLE_SHARE_RDZV_TCP_STORE)";
  } else {
    spec.replacements = options.replace;
  }
}

std::string random_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace

Launch to_launch(const RunOptions& options, const Surroundings& surroundings) {
  Launch launch{.spec = to_spec(options, surroundings), .nodes = {}};
  if (surroundings.is_agent) {
    decide_on_replacements(options, surroundings, launch);
    return launch;
  }
  if (!options.standalone) check_backend(options.rdzv_backend);
  const auto place = read_outer_launcher(options, surroundings.environment);
  launch.nodes = to_nodes(options, surroundings, place);
  auto& spec = launch.spec;
  if (options.spares > 0 && (launch.nodes.is_elastic() || (spec.restarts.num == 0 && options.replace == 0))) {
    throw Error(
        ErrorCode::kInvalidArgument, "--spares {}: {}", options.spares,
        launch.nodes.is_elastic()
            ? "an elastic job (--nnodes MIN:MAX) needs no spares, because it takes any host that is there"
            : "a spare takes the place of a lost host when all ranks start again, or while the others go on; give "
              "--max-restarts or --replace, too");
  }
  if (place && spec.run_id == "none") spec.run_id = place->run_id;
  spec.has_random_id = options.standalone || (spec.run_id == "none" && is_standalone_by_itself(options, launch.nodes));
  if (spec.has_random_id) spec.run_id = random_id();
  place_store(options, launch.nodes, launch.spec);
  decide_on_replacements(options, surroundings, launch);
  return launch;
}

}  // namespace yoke::launch
