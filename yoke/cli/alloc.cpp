// `yoke alloc`: hold nodes of Slurm, and start one job after another in them.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/file.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <array>
#include <csignal>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "yoke/base/command_output.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/format.h"
#include "yoke/base/hostlist.h"
#include "yoke/base/moment.h"
#include "yoke/base/quantity.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/allocations.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/help/values.h"
#include "yoke/cli/options/allocation.h"
#include "yoke/cluster/allocation.h"
#include "yoke/cluster/keeper.h"
#include "yoke/launch/process/signals.h"
#include "yoke/program/watched_program.h"
#include "yoke/slurm/check/options.h"
#include "yoke/slurm/holding.h"
#include "yoke/slurm/script/plan.h"
#include "yoke/slurm/submit.h"

namespace yoke::cli {
namespace {

using cluster::Allocation;
using std::chrono::system_clock;
using Steady = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFileEvery{100}, kFirstQuestion{300}, kLongestPause{15'000};
constexpr std::chrono::seconds kNewsEvery{60};
/// How long after its start an allocation may take to tell its nodes. After that, the home is not shared.
constexpr std::chrono::seconds kKeeperTime{60};
constexpr size_t kShownLogLines = 5;

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
    std::vector<slurm::check::OptionWord> words;
    for (size_t j = i; j < more.size(); ++j) words.push_back({.text = more[j]});
    const auto parsed = parse_options(slurm::check::kSbatch, words);
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

std::string left_text(int64_t until) {
  if (until == 0) return "";
  const auto end = system_clock::from_time_t(until);
  const auto left = std::chrono::ceil<std::chrono::seconds>(end - system_clock::now());
  return left.count() > 0 ? format_rough_duration(left) : "over";
}

std::string resources_text(const Allocation& allocation) {
  const auto& nodes = allocation.nodes;
  const auto is_same = [&](const auto& node) {
    return node.num_gpus == nodes[0].num_gpus && node.num_cpus == nodes[0].num_cpus;
  };
  if (nodes[0].num_cpus == 0 || !std::ranges::all_of(nodes, is_same)) return "";
  const auto gpus = nodes[0].num_gpus == 0
                        ? std::string()
                        : fmt::format("{} GPU{} and ", nodes[0].num_gpus, nodes[0].num_gpus == 1 ? "" : "s");
  return fmt::format(",{} with {}{} CPU{}", nodes.size() == 1 ? "" : " each", gpus, nodes[0].num_cpus,
                     nodes[0].num_cpus == 1 ? "" : "s");
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
                        left_text(allocation.until));
  }
  return text + fmt::format(
                    "\n  yoke run --in {0} train.py          ranks on its nodes, again and again"
                    "\n  yoke exec --in {0} -- nvidia-smi    a command on each node"
                    "\n  yoke shell --in {0}                 a shell on {1}"
                    "\n  yoke stop {0}                       give it back\n",
                    job, allocation.nodes[0].name);
}

/// Waits for the start of an allocation that was requested.
class AllocStart {
 public:
  AllocStart(Allocation request, std::optional<std::chrono::seconds> limit, program::SignalMessages& signals,
             Context& context)
      : request_(std::move(request)), limit_(limit), signals_(signals), context_(context) {}

  /// Returns nullopt if a signal ended the wait; then the request was cancelled. Errors  kTimeout: --wait is over;
  /// kFailedPrecondition: the job has ended. Nothing is left then.
  std::optional<Allocation> wait() {
    while (true) {
      if (auto allocation = cluster::read_allocation(request_.file)) return allocation;
      if (Steady::now() >= next_question_) {
        if (auto allocation = look()) return allocation;
      }
      if (limit_ && Steady::now() >= began_ + *limit_) {
        cancel();
        throw Error(ErrorCode::kTimeout, "allocation {} did not start within {}{}{}; the request is cancelled",
                    request_.job, format_rough_duration(*limit_), reason_.empty() ? "" : ": ", reason_);
      }
      pollfd news{signals_.fd(), POLLIN, 0};
      poll(&news, 1, kFileEvery.count());
      while (const auto message = signals_.next()) {
        if (message->signal == SIGCHLD || message->signal == SIGUSR1 || message->signal == SIGUSR2) continue;
        cancel();
        std::cerr << fmt::format("{}request {} is cancelled\n", speaker(context_), request_.job) << std::flush;
        signal_ = message->signal;
        return std::nullopt;
      }
    }
  }
  int signal() const { return signal_; }
  bool is_over() const { return is_over_; }  ///< Whether the job has ended or was to be cancelled.

  void cancel() {
    is_over_ = true;
    try {
      cancel_job(request_.job, context_);
    } catch (const Error& error) {
      throw Error(ErrorCode::kUnavailable, "{}; so request {} is still there: run `scancel {}` when Slurm answers",
                  error.what(), request_.job, request_.job);
    }
    cluster::remove_allocation(request_);
  }

 private:
  /// Asks Slurm how far the job is.
  std::optional<Allocation> look() {
    pause_ = std::min(pause_ * 3 / 2, kLongestPause);
    next_question_ = Steady::now() + pause_;
    std::optional<slurm::Job> job;
    try {
      job = slurm::find_job(request_.job, context_.environment);
    } catch (const Error& error) {
      tell(fmt::format("{}; still waiting for allocation {}", error.what(), request_.job));
      return std::nullopt;
    }
    const auto phase = job ? phase_of(*job) : slurm::Phase::kEnded;
    if (phase == slurm::Phase::kWaiting) {
      tell_why(*job);
    } else if (phase == slurm::Phase::kHeld) {
      if (!started_) started_ = Steady::now();
      if (Steady::now() >= *started_ + kKeeperTime) return without_keeper(*job);
    } else {
      fail();
    }
    return std::nullopt;
  }

  void tell_why(const slurm::Job& job) {
    reason_ = slurm::why_waiting(job.reason);
    auto text = fmt::format("allocation {} waits: {}", request_.job, reason_);
    if (Steady::now() >= next_count_ && (job.reason == "Priority" || job.reason == "Resources")) {
      next_count_ = Steady::now() + kNewsEvery;  // a long queue is a long answer
      try {
        num_before_ = jobs_before(job, context_.environment);
      } catch (const Error&) {
        num_before_.reset();
      }
    }
    if (num_before_.value_or(0) > 0) {
      text += fmt::format("; {} job{} with a higher priority wait{} in partition {}", *num_before_,
                          *num_before_ == 1 ? "" : "s", *num_before_ == 1 ? "s" : "", printable(job.partition));
    }
    if (job.started && *job.started > system_clock::now()) {
      text += fmt::format("; Slurm expects its start at {} (in {})", moment_text(*job.started),
                          left_text(system_clock::to_time_t(*job.started)));
    }
    tell(text);
  }

  /// Says the text if it is new; if only a number in it is, once in a minute.
  void tell(const std::string& text) {
    const auto beginning = text.substr(0, text.find(';'));
    if (text == told_ || (beginning == told_beginning_ && Steady::now() < next_news_)) return;
    told_ = text;
    told_beginning_ = beginning;
    next_news_ = Steady::now() + kNewsEvery;
    std::cerr << speaker(context_) << text << std::endl;
  }

  /// The job runs, but no file of its keeper is here.
  std::optional<Allocation> without_keeper(const slurm::Job& job) {
    for (const auto& name : expand_hostlist(job.node_list)) {
      request_.nodes.push_back({.name = name, .address = name});
    }
    request_.until = end_of(job);
    auto written = request_;
    written.file = cluster::request_file(request_.file);
    write_allocation(written);
    std::cerr << fmt::format(
        "{}the nodes did not tell where their agents are, perhaps because they do not share {} "
        "with this host, or because the agents are still starting; commands use srun, which is slower\n",
        speaker(context_), request_.file.parent_path().string());
    return request_;
  }

  [[noreturn]] void fail() {
    cluster::end_allocation(request_);
    const auto why = end_of_allocation(request_.job, false, context_);  // it names the log that is kept
    std::string said;
    try {
      const auto log = cluster::kept_log(request_.job, context_.environment);
      const auto text = log ? read_regular_file(*log, 1 << 20) : "";
      const auto lines = lines_of(text);
      for (size_t i = lines.size() - std::min(lines.size(), kShownLogLines); i < lines.size(); ++i) {
        said += "\n  " + printable(lines[i]);
      }
    } catch (const Error&) {  // there is no log
    }
    is_over_ = true;
    throw Error(ErrorCode::kFailedPrecondition, "allocation {} has ended before it could be used: {}{}", request_.job,
                why.value_or("Slurm does not say why"), said);
  }

  Allocation request_;
  const std::optional<std::chrono::seconds> limit_;
  program::SignalMessages& signals_;
  Context& context_;
  const Steady::time_point began_ = Steady::now();
  Steady::time_point next_question_ = began_ + kFirstQuestion, next_news_ = began_, next_count_ = began_;
  std::chrono::milliseconds pause_ = kFirstQuestion;
  std::optional<Steady::time_point> started_;
  std::optional<int64_t> num_before_;
  std::string reason_, told_, told_beginning_;
  int signal_ = 0;
  bool is_over_ = false;
};

/// Files can outlive their allocation, so Slurm is asked before a name is refused.
void check_name_is_free(const std::string& name, const Context& context) {
  for (const auto& held : held_allocations(context)) {
    if (held.allocation.name != name) continue;
    throw Error(ErrorCode::kFailedPrecondition,
                "you hold an allocation {} already (job {}: {}); use it, `yoke stop {}`, or give another --name", name,
                held.allocation.job, held.state, name);
  }
}

/// Submits the request, and returns the job's id. The file of the request is written before: where that is not
/// possible, as on a full disk, nothing must be requested.
std::string submit(const slurm::HoldingRequest& request, const Allocation& written, const Environment& environment) {
  write_allocation(written);
  const auto output = run_quietly(slurm::request_command(request), environment, slurm::kSubmitTime);
  const bool is_accepted = output.status == 0 && !output.timed_out;
  const auto submission = is_accepted ? slurm::parse_submission(output) : std::nullopt;
  if (submission) return submission->job_id;
  cluster::remove_allocation(written);
  const auto refusal = slurm::refusal_of(output);
  if (!is_accepted && refusal.code() != ErrorCode::kTimeout) throw refusal;
  throw Error(ErrorCode::kUnavailable,
              "{}; so a job may be in the queue all the same: `squeue --me --name={}` shows it, `scancel` ends it",
              is_accepted ? "sbatch printed no job's id" : refusal.what(),
              request.name.empty() ? slurm::kHoldingName : request.name);
}

/// Of the errors of this command, only the end of --wait is a timeout, so that scripts can tell it from others.
std::string cluster_here(const Context& context) {
  try {
    return slurm::cluster_name(context.environment);
  } catch (const Error& error) {
    throw Error(error.code() == ErrorCode::kTimeout ? ErrorCode::kUnavailable : error.code(), "{}", error.what());
  }
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
  Allocation wanted{.job = "", .name = request.name, .secret = "", .yoke = args.remote_yoke, .nodes = {}};
  if (wanted.yoke.empty()) wanted.yoke = context.installation.executable.string();
  wanted.file = cluster::new_allocation_file(context.environment);
  UniqueFd names;  // a lock: of several requests at once with one name, the first gets it
  if (!request.name.empty()) {
    names = UniqueFd(open(wanted.file.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    flock(names.value(), LOCK_EX);  // fails on file systems without locks
    check_name_is_free(request.name, context);
  }
  request.program = {wanted.yoke, "agent", "--keep"};
  auto environment = slurm::without_outer_job(context.environment);
  for (const auto* name : {"SBATCH_CLUSTERS", "SBATCH_WAIT", "SBATCH_ARRAY_INX", "SBATCH_REQUEUE"})
    environment.erase(name);
  environment.set(cluster::kFileVariable, wanted.file.string());
  wanted.cluster = cluster_here(context);
  program::SignalMessages signals;  // from here on, no signal leaves a request behind
  launch::fail_instead_of(SIGXFSZ);
  launch::fail_instead_of(SIGPIPE);
  auto written = wanted;
  written.file = cluster::request_file(wanted.file);
  written.job = wanted.job = submit(request, written, environment);
  AllocStart start(wanted, limit, signals, context);
  std::optional<Allocation> allocation;
  try {
    write_allocation(written);
    names.reset();
    allocation = start.wait();
  } catch (const Error& error) {
    if (start.is_over()) throw;
    start.cancel();
    throw Error(error.code(), "{}; request {} is cancelled", error.what(), wanted.job);
  }
  if (!allocation) return 128 + start.signal();
  context.out << (args.json ? cli::to_json(*allocation).dump(2) + "\n" : held_text(*allocation)) << std::flush;
  if (context.out) return kExitOk;
  const auto why = system_error(error_of(context.out), "writing the output");
  context.out.clear();
  start.cancel();
  throw Error(why.code(), "{}; allocation {} is given back", why.what(), wanted.job);
}

int list_held(const AllocArgs& args, Context& context) {
  auto held = held_allocations(context);
  if (args.json) {
    auto json = nlohmann::ordered_json::array();
    for (const auto& one : held) {
      json.push_back(cli::to_json(one.allocation));
      json.back()["state"] = one.state;
      json.back()["reason"] = one.reason.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(one.reason);
    }
    context.out << nlohmann::ordered_json({{"allocations", json}}).dump(2) << '\n';
    return kExitOk;
  }
  if (held.empty()) {
    context.out << "you hold no allocation\n";
    return kExitOk;
  }
  Table table{.columns = {{"job", Align::kRight}, {"name"}, {"state"}, {"left", Align::kRight}, {"nodes"}}, .rows = {}};
  for (const auto& [allocation, state, reason] : held) {
    table.rows.push_back({allocation.job, allocation.name.empty() ? "-" : allocation.name,
                          reason.empty() ? state : fmt::format("{}: {}", state, reason),
                          allocation.until == 0 ? "-" : left_text(allocation.until),
                          allocation.nodes.empty() ? "-" : node_names_of(allocation)});
  }
  context.out << to_text(table, table_width(context));
  return kExitOk;
}

}  // namespace

void add_alloc(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<AllocArgs>();  // CLI11 keeps references to it; the callback owns it
  auto more = std::make_shared<std::vector<std::string>>();
  auto& request_args = args->request;
  cmd.add_option("-N,--nodes", request_args.num_nodes, "How many nodes")
      ->type_name("N")
      ->check(in_range(1, 65'536, "nodes"))
      ->capture_default_str();
  cmd.add_option("--gpus-per-node", request_args.gpus_per_node, "Devices on each node: 4, or a type such as a100:4")
      ->type_name("COUNT");
  cmd.add_option("-c,--cpus-per-node", request_args.cpus_per_node,
                 "CPUs on each node; unless given, what Slurm gives, often one core or the whole node")
      ->type_name("N")
      ->check(in_range(1, 65'536, "CPUs"));
  cmd.add_option("-t,--time", args->time, "How long: 30m, 4h, 1d12h, or as Slurm writes it; the partition's default")
      ->type_name("TIME");
  cmd.add_option("-p,--partition", request_args.partition, "Partition (queue)")->type_name("NAME");
  cmd.add_option("-A,--account", request_args.account, "Account that pays")->type_name("NAME");
  cmd.add_option("--name", request_args.name, "A name by which --in and `yoke stop` find it")->type_name("TEXT");
  cmd.add_option("--wait", args->wait, "Cancel the request if it has not started after this time")->type_name("TIME");
  cmd.add_option("--remote-yoke", args->remote_yoke, "Path of yoke on the nodes, if it differs from the path here")
      ->type_name("PATH");
  cmd.add_flag("--list", args->list, "List your allocations, with the time that is left");
  cmd.add_flag("--json", args->json, "Print JSON");
  cmd.add_option("OPTIONS", *more, "After --: further options of sbatch")
      ->type_name(kProgramArguments)
      ->expected(0, -1);
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
  cmd.callback([args, more, &context] {
    context.exit_code = args->list ? list_held(*args, context) : request_allocation(*args, context);
  });
}

}  // namespace yoke::cli
