// `yoke run`: start a program once for each rank, with torchrun's environment.
#include "yoke/cli/options/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <iostream>
#include <memory>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/base/json.h"
#include "yoke/base/process.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/node_request.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/help/complete.h"
#include "yoke/cli/help/hints.h"
#include "yoke/cli/launch/slurm_step.h"
#include "yoke/cli/options/allocation.h"
#include "yoke/cli/options/claim.h"
#include "yoke/cli/options/container.h"
#include "yoke/cli/options/value.h"
#include "yoke/cluster/held.h"
#include "yoke/cluster/hosts.h"
#include "yoke/cluster/ssh.h"
#include "yoke/cluster/token.h"
#include "yoke/keep/hold.h"
#include "yoke/launch/job/agent.h"
#include "yoke/launch/job/supervisor.h"
#include "yoke/launch/output/failure_report.h"
#include "yoke/launch/plan/plan.h"
#include "yoke/launch/torchrun/launch.h"
#include "yoke/launch/torchrun/spec.h"
#include "yoke/slurm/job/node_sampler.h"

namespace yoke::cli {
namespace {

struct RunArgs {
  launch::RunOptions options;
  bool plan = false;
  bool claims = false;
  std::string length, wait, memory;  ///< Of the claim.
  bool share = false;
  std::string container;
  ContainerOptions container_options;
  bool json = false;
  std::string print_completion;  ///< A shell.
};

/// Contains only the variables that yoke adds or changes, because the user's own environment may contain secrets.
Json to_json(const std::vector<launch::RankPlan>& ranks, const Environment& before) {
  auto result = Json::array();
  for (const auto& rank : ranks) {
    Json environment;
    for (const auto& variable : rank.environment) {
      const auto equals = variable.find('=');
      const auto name = variable.substr(0, equals), value = variable.substr(equals + 1);
      if (before.find(name) != value) environment[name] = value;
    }
    Json one = {{"rank", rank.rank}, {"argv", rank.argv}, {"environment", environment}};
    one["cpus"] = or_null(rank.cpus.to_list());
    one["memory_nodes"] = or_null(rank.memory_nodes.to_list());
    if (!rank.out.file.empty()) one["stdout_log"] = rank.out.file;
    if (!rank.err.file.empty()) one["stderr_log"] = rank.err.file;
    result.push_back(std::move(one));
  }
  return result;
}

Table to_table(const std::vector<launch::RankPlan>& ranks) {
  Table table{.columns = {{"rank", Align::kRight}, {"CPUs"}, {"out"}, {"err"}, {"program", Align::kLeft, 20}}};
  const auto describe = [](const launch::StreamPlan& stream) {
    const bool is_shown = stream.to == launch::StreamPlan::To::kLauncher;
    if (stream.file.empty()) return std::string(is_shown ? "screen" : "-");
    return std::string(is_shown ? "screen, log" : "log");
  };
  for (const auto& rank : ranks) {
    table.rows.push_back({fmt::format("{}", rank.rank), rank.cpus.empty() ? "all" : rank.cpus.to_list(),
                          describe(rank.out), describe(rank.err), fmt::format("{}", fmt::join(rank.argv, " "))});
  }
  return table;
}

/// Prints hosts instead of ranks, because only a host itself knows its CPUs and devices.
int show_hosts(const launch::NodesSpec& nodes, const RunArgs& args, Context& context) {
  const auto num_ranks = [&](const launch::Host& host) {
    return host.num_ranks ? fmt::format("{}", *host.num_ranks) : args.options.nproc_per_node;
  };
  Json json = {{"hosts", Json::array()}};
  Table table{.columns = {{"node", Align::kRight}, {"host"}, {"ranks"}, {"program", Align::kLeft, 20}}};
  for (const auto& host : nodes.hosts) {
    const auto node = static_cast<int64_t>(table.rows.size());
    const bool is_spare = node >= nodes.membership.max_nodes;
    table.rows.push_back({is_spare ? "spare" : fmt::format("{}", node), host.name, num_ranks(host),
                          fmt::format("{}", fmt::join(context.rest, " "))});
    json["hosts"].push_back({{"node_rank", is_spare ? Json() : Json(node)},
                             {"host", host.name},
                             {"num_ranks", num_ranks(host)},
                             {"argv", context.rest}});
  }
  context.out << (args.json ? json_page(json) : to_text(table, output_width(context)));
  return kExitOk;
}

/// Returns the place of this node, assuming that every other node has as many ranks as this one.
launch::NodePlace place_of(const launch::LaunchSpec& spec, const launch::NodesSpec& nodes) {
  const auto node_rank = nodes.node_rank.value_or(0), num_nodes = nodes.membership.max_nodes;
  return {.node_rank = node_rank,
          .num_nodes = num_nodes,
          .first_rank = node_rank * spec.num_ranks,
          .world_size = num_nodes * spec.num_ranks,
          .first_role_rank = node_rank * spec.num_ranks,
          .role_world_size = num_nodes * spec.num_ranks,
          .master_addr = nodes.is_several() ? nodes.master_addr.value_or(nodes.endpoint_host) : spec.master_addr,
          .master_port = spec.master_port.value_or(0),
          .agent_serves_store = launch::launcher_serves_store(spec, num_nodes * spec.num_ranks, nodes.is_several()),
          .is_elastic = nodes.is_elastic()};
}

int show_plan(const launch::Launch& job, const RunArgs& args, Context& context) {
  const auto& [spec, nodes] = job;
  if (!nodes.hosts.empty()) return show_hosts(nodes, args, context);
  const bool has_files = !spec.logs.folder.empty() || !spec.logs.redirects.is_empty() || !spec.logs.tee.is_empty();
  const auto binding = launch::bind_here(spec);
  // The job chooses a port and a folder when it starts. The plan shows port 0 unless the user chose a port.
  const auto ranks = launch::plan(
      spec, {.binding = binding,
             .place = place_of(spec, nodes),
             .log_folder = has_files ? fmt::format("{}/{}_XXXXXX/attempt_0", spec.logs.folder, spec.run_id) : ""});
  if (args.json) {
    const Json json = {
        {"ranks", to_json(ranks, context.environment)}, {"binding", binding.reason}, {"warnings", binding.warnings}};
    print_json(json, context);
  } else {
    context.out << to_text(to_table(ranks), output_width(context)) << fmt::format("\nCPUs: {}\n", binding.reason);
    for (const auto& warning : binding.warnings) context.out << fmt::format("warning: {}\n", warning);
  }
  return kExitOk;
}

/// Returns the message that asks `yoke agent` on a different host to run this command line.
nlohmann::json for_agents(const launch::NodesSpec& nodes, const RunArgs& args, const CLI::App& command,
                          const Context& context) {
  const bool is_in = !args.options.allocation.empty();
  return {{"words", context.words},
          {"environment", environment_for_nodes(context.environment, is_in ? ForNodes::kOfSlurm : ForNodes::kAny)},
          {"folder", working_folder()},
          {"ranks_by_slurm", is_in && command.get_option("--nproc-per-node")->count() == 0},
          {"on_a_terminal", isatty(STDOUT_FILENO) == 1},
          {"silence_ms", nodes.silence.count()}};
}

/// Runs the job, and adds a hint if the failure looks like a mistake in the command line.
int run_with_hint(const launch::Launch& job, const RunArgs& args, const CLI::App& command, const Context& context) {
  constexpr std::chrono::seconds kQuick{10};
  const auto start = std::chrono::steady_clock::now();
  const auto& nodes = job.nodes;
  const int status = run_job(job, nodes.hosts.empty() ? nlohmann::json() : for_agents(nodes, args, command, context));
  const bool is_quick = std::chrono::steady_clock::now() - start < kQuick;
  const auto hint = hint_about({.status = status, .is_quick = is_quick}, context.rest, [&](std::string_view name) {
    const auto* option = command.get_option_no_throw(std::string(name));
    return option != nullptr && option->count() == 0;
  });
  if (hint) std::cerr << "yoke run: " << printable(*hint) << std::endl;
  return status;
}

/// Returns the nodes of the allocation of --in, or with --nnodes N the first N of them, and the spares after these.
launch::ListedHosts hosts_of_allocation(const launch::RunOptions& options, const Context& context) {
  auto allocation = open_allocation(options.allocation, context);
  auto hosts = allocation.take_hosts();
  const auto wanted = parse_int(options.nnodes);
  const auto num_used = wanted.value_or(0) + options.spares;
  if (wanted && *wanted >= 1 && num_used < static_cast<int64_t>(hosts.size()))
    hosts.resize(static_cast<size_t>(num_used));
  return {.hosts = std::move(hosts), .allocation = allocation.allocation.job};
}

/// Returns the hosts of --hosts or --hostfile, which are reached by ssh, or those of --in.
launch::ListedHosts list_hosts(const launch::RunOptions& options, const Context& context) {
  if (!options.allocation.empty()) return hosts_of_allocation(options, context);
  const auto entries =
      options.hostfile.empty() ? cluster::parse_hosts(options.hosts) : cluster::read_hostfile(options.hostfile);
  cluster::SshOptions ssh{.yoke = options.remote_yoke.empty() ? context.installation.executable.string()
                                                              : options.remote_yoke};
  ssh.ssh.clear();
  // Splits at blanks without a shell, as rsync does with its option -e.
  for (const auto word : words_of(options.ssh)) ssh.ssh.emplace_back(word);
  if (ssh.ssh.empty()) refuse("--ssh is empty; give the command that reaches a host, such as ssh");
  std::vector<launch::Host> hosts;
  for (const auto& entry : entries) {
    hosts.push_back({entry.name, entry.num_ranks, [ssh, name = entry.name] { return start_by_ssh(ssh, name); }});
  }
  return {.hosts = std::move(hosts)};
}

launch::Surroundings surroundings_of(const launch::RunOptions& options, const Context& context) {
  launch::Surroundings result{.program = context.rest,
                              .environment = context.environment,
                              .python_loader = context.installation.share / "python" / "yoke_preload.py"};
  if (context.agent != nullptr) {
    result.is_agent = true;
    result.num_ranks = context.agent->num_ranks;
    result.heads_terminal = context.agent->heads_terminal;
  }
  result.find_program = [&context](const std::string& name) -> std::optional<std::string> {
    const auto found = find_program(name, context.environment);
    return found ? std::optional(found->string()) : std::nullopt;
  };
  result.list_hosts = [&] { return list_hosts(options, context); };
  result.job_token = [&context] { return cluster::job_token(context.environment); };
  return result;
}

/// Appends the words of this command, without the options that are for the outer one.
void append_inner_words(std::vector<std::string>& words, const Context& context) {
  constexpr std::string_view kOuter[] = {"--container", "--for",    "--volume",
                                         "-v",          "--engine", "--memory"};  // with a value
  constexpr std::string_view kOuterFlags[] = {"--claim", "--share", "--wait"};
  const auto num_own = context.words.size() - context.rest.size();
  for (size_t i = 0; i < context.words.size(); ++i) {
    const auto& word = context.words[i];
    const bool is_own = i < num_own;
    const auto is_outer = [&](std::string_view name) { return word == name; };
    const auto has_value = [&](std::string_view name) {
      return word.starts_with(name) && (name == "-v" ? word.size() > 2 : word.substr(name.size()).starts_with('='));
    };
    const bool is_flag = std::any_of(std::begin(kOuterFlags), std::end(kOuterFlags), is_outer);
    if (is_own && std::any_of(std::begin(kOuter), std::end(kOuter), is_outer)) {
      ++i;  // its value
    } else if (is_own && is_flag) {
      const bool has_time =
          word == "--wait" && i + 1 < num_own && context.words[i + 1].find_first_of("0123456789") == 0;
      if (has_time) ++i;
    } else if (!is_own || (!has_value("--wait") && std::none_of(std::begin(kOuter), std::end(kOuter), has_value))) {
      words.push_back(word);
    }
  }
}

/// The number of ranks as a text. `option` needs it, and works on this machine alone.
std::string num_ranks_for(const char* option, const RunArgs& args) {
  const auto num_ranks = parse_int(args.options.nproc_per_node);
  if (!num_ranks || *num_ranks < 1) {
    refuse("{} claims a device for each rank, so give their number, as in -n 4", option);
  }
  if (!args.options.hosts.empty() || !args.options.hostfile.empty() || !args.options.allocation.empty()) {
    refuse("{} is for the devices of this machine; on other hosts, start `yoke claim -n N -- yoke run ...`", option);
  }
  return std::to_string(*num_ranks);
}

[[noreturn]] void become(const std::vector<std::string>& words) {
  execv(words[0].c_str(), exec_pointers(words).data());
  throw system_error(errno, "starting " + words[0]);
}

/// The options of a claim that two commands have.
void append_claim_words(std::vector<std::string>& words, const RunArgs& args) {
  if (!args.length.empty()) words.insert(words.end(), {"--for", args.length});
  if (!args.wait.empty()) words.push_back("--wait=" + args.wait);
}

/// Becomes `yoke claim -n N -- yoke run ...`, which starts this command again with the devices.
[[noreturn]] void become_claim(const RunArgs& args, const Context& context) {
  const auto executable = context.installation.executable.string();
  std::vector<std::string> words = {executable, "claim", "-n", num_ranks_for("--claim", args)};
  append_claim_words(words, args);
  if (!args.memory.empty()) words.insert(words.end(), {"--memory", args.memory});
  if (args.share) words.emplace_back("--share");
  if (!context.rest.empty()) words.insert(words.end(), {"--name", "yoke run " + keep::purpose_of(context.rest)});
  words.insert(words.end(), {"--", executable});
  append_inner_words(words, context);
  become(words);
}

/// Becomes `yoke container run --gpu N IMAGE -- yoke run ...`, which starts this command again in the container.
[[noreturn]] void become_container(const RunArgs& args, const Context& context) {
  std::vector<std::string> words = {context.installation.executable.string(), "container", "run", "--gpu",
                                    num_ranks_for("--container", args)};
  append_claim_words(words, args);
  const auto& options = args.container_options;
  if (!options.engine.empty()) words.insert(words.end(), {"--engine", options.engine});
  for (const auto& volume : options.volumes) words.insert(words.end(), {"-v", volume});
  words.insert(words.end(), {args.container, "--", "yoke"});
  append_inner_words(words, context);
  become(words);
}

/// Says once for the job which nodes and ranks come from Slurm.
void say_what_slurm_gave(const launch::NodesSpec& nodes, const launch::RunOptions& options,
                         const launch::Surroundings& surroundings) {
  if (options.quiet || launch::says_where(options) || nodes.node_rank.value_or(0) != 0) return;
  const auto ranks = launch::ranks_of_scheduler(options, surroundings);
  const auto text =
      launch::describe_slurm(surroundings.environment, nodes.membership.max_nodes + nodes.membership.num_spares, ranks);
  if (text) std::cerr << "yoke run: " << *text << std::endl;
}

/// Whether a job in an allocation may have failed because the allocation has ended: ranks got a signal, or nodes are
/// lost.
bool may_be_end(int status) {
  const bool is_own = status == 128 + SIGINT || status == 128 + SIGHUP;  // the user has ended the job
  return status == exit_status(ErrorCode::kUnavailable) || (status > 128 && !is_own);
}

void tell_end_of_allocation(const std::string& job, int status, const launch::LaunchSpec& spec,
                            const Context& context) {
  const bool nodes_are_lost = status == exit_status(ErrorCode::kUnavailable);
  if (const auto why = cluster::end_of_allocation(job, nodes_are_lost, context.environment))
    std::cerr << fmt::format("{}: allocation {} has ended: {}\n", spec.name, job, *why) << std::flush;
}

int run_run(const RunArgs& args, const CLI::App& command, Context& context) {
  if (!args.print_completion.empty()) {
    context.out << completion_script(args.print_completion);
    return kExitOk;
  }
  if ((!args.length.empty() || !args.wait.empty()) && !args.claims && args.container.empty()) {
    refuse("{}; give --claim or --container, too",
           args.wait.empty() ? "--for is the time of a claim" : "--wait is for a claim");
  }
  if ((args.share || !args.memory.empty()) && !args.claims) {
    refuse("--memory and --share are for a claim; give --claim, too");
  }
  if (args.container.empty() && !(args.container_options.engine.empty() && args.container_options.volumes.empty())) {
    refuse("--engine and --volume are for a container; give --container, too");
  }
  if (args.json && !args.plan) refuse("--json needs --plan");
  if (const auto step = context.agent != nullptr || context.rest.empty()
                            ? std::nullopt
                            : launch::slurm_step_for(args.options, context.environment)) {
    if (args.plan) return show_slurm_step(*step, args.options, args.json, context);
    become_slurm_step(*step, args.options, context);
  }
  if (!args.container.empty() && context.agent == nullptr && !args.plan) become_container(args, context);
  if (args.claims && context.agent == nullptr && !args.plan) become_claim(args, context);
  const auto surroundings = surroundings_of(args.options, context);
  const auto job = to_launch(args.options, surroundings);
  const auto& [spec, nodes] = job;
  if (context.agent != nullptr) {
    const slurm::JobSampler sampler(context.installation.executable, context.environment);
    return launch::serve_head(spec, context.agent->channel);
  }
  if (args.plan) return show_plan(job, args, context);
  say_what_slurm_gave(nodes, args.options, surroundings);
  if (!args.options.quiet) {
    for (const auto& text : launch::describe_missing_servers(context.environment)) {
      std::cerr << "yoke run: " << text << std::endl;
    }
  }
  const slurm::JobSampler sampler(context.installation.executable, context.environment);
  try {
    const int status = run_with_hint(job, args, command, context);
    if (!nodes.allocation.empty() && may_be_end(status))
      tell_end_of_allocation(nodes.allocation, status, spec, context);
    return status;
  } catch (const Error& error) {
    launch::leave_error_file(spec, std::nullopt, fmt::format("{}: {}", spec.name, error.what()),
                             [&](const std::string& text) { std::cerr << spec.name << ": " << text << '\n'; });
    throw;
  }
}

}  // namespace

void add_run(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<RunArgs>();  // CLI11 keeps references to *args; the callback owns it
  add_run_options(cmd, args->options);
  cmd.add_flag("--plan", args->plan, "Print what would be started, and start nothing");
  cmd.add_flag("--claim", args->claims, "Claim a device for each rank while the job runs; see `yoke claim`");
  add_value(cmd, "--for", args->length, "TIME", "With --claim or --container: how long, such as 4h; see `yoke claim`");
  add_value(cmd, "--wait", args->wait, "[TIMEOUT]",
            "With --claim or --container: queue until devices are free, for at most TIMEOUT");
  add_value(cmd, "--memory", args->memory, "SIZE",
            "With --claim: memory that must be free on each device, such as 20GiB");
  cmd.add_flag("--share", args->share, "With --claim: share the devices with others; --memory says how much of each");
  add_value(cmd, "--container", args->container, "IMAGE",
            "Start the ranks in a container of this image, with a claimed device for each; see `yoke container`");
  add_engine_and_volumes(cmd, args->container_options);
  cmd.add_flag("--json", args->json, "With --plan: print JSON, with the variables that each rank gets");
  cmd.add_option("--print-completion", args->print_completion,
                 "Print a shell's completion script, as `yoke completion` does, and start nothing")
      ->type_name("bash|zsh|fish");
  add_program(cmd, "PROGRAM",
              "Program to start and its arguments; options of yoke come before it. In an "
              "argument, ${local_rank} becomes the local rank");
  cmd.footer(examples(
      "  yoke run -n 2 -- ./train --epochs 5      two ranks of a C++ program\n"
      "  yoke run --hosts a,b -n gpu train.py     on two machines, by ssh\n"
      "  yoke run --in last train.py              in an allocation of Slurm that `yoke alloc` holds\n"
      "  yoke run --nnodes 2 --node-rank 0 --rdzv-endpoint a:29400 -n 8 train.py    on host a; --node-rank 1 on b\n"
      "  yoke run train.py                        in a job of Slurm: on its nodes, a rank for each of its GPUs\n"
      "  yoke run -n gpu train.py                 a Python script, one rank for each GPU\n"
      "  yoke run -n 2 --max-restarts 3 ./train   start all again when one fails\n"
      "  yoke run -n 4 --container ngc/pytorch:25.05-py3 train.py    four ranks in a container\n"
      "  yoke run -n 4 --tee 3 --log-dir logs train.py\n"
      "  yoke run -n 2 --plan -- ./train          what each rank would get\n"
      "\n"
      "Options of torchrun are accepted, with dashes or underscores, and so are its variables PET_*.\n"
      "If an option is repeated, the last one counts. An empty value is an error, because it often\n"
      "comes from a shell variable that is not set.\n"
      "\n"
      "The exit status is that of the first rank that failed, 128 plus the signal's number\n"
      "if a signal ended it, 127 if the program is not found, 75 if output could not be written."));
  cmd.callback([args, &cmd, &context] { context.exit_code = run_run(*args, cmd, context); });
}

}  // namespace yoke::cli
