// `yoke stop`: end a job and wait until it has ended.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/help/values.h"
#include "yoke/cli/options/job.h"
#include "yoke/cluster/held.h"
#include "yoke/device/process/info.h"
#include "yoke/device/process/signal.h"
#include "yoke/launch/plan/rank_list.h"

namespace yoke::cli {
namespace {

using std::chrono::milliseconds;

/// How long to wait for a launcher's answer. A launcher normally answers in the next turn of its event loop.
constexpr std::chrono::seconds kStopPatience{5};
constexpr std::chrono::seconds kToldEvery{1};
/// Slurm kills processes that do not end after KillWait, 30 s unless the site has changed it.
constexpr std::chrono::seconds kReleasePatience{90};

struct StopArgs {
  std::string job;
  bool now = false;
  double timeout_s = 0;
};

launch::FoundJob find(const std::string& name) {
  try {
    return launch::choose_job(launch::find_jobs(), name);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound || name.empty()) throw;
    throw Error(error.code(), "{}; you hold no allocation {} either (`yoke alloc --list`){}", error.what(),
                printable(name), parse_int(name) ? fmt::format("; `scancel {}` ends a job of Slurm", name) : "");
  }
}

/// Returns a handle (a pidfd) of the launcher, or nullopt if the launcher has ended. The handle refers to the launcher
/// even if the kernel later gives its PID to a new process.
std::optional<device::ProcessHandle> hold(int64_t pid) {
  const auto start_ticks = device::describe_process(pid).start_ticks;
  if (!start_ticks) return std::nullopt;
  try {
    return device::ProcessHandle(pid, *start_ticks);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) return std::nullopt;
    throw;
  }
}

std::string who_is_up(const launch::Job& job) {
  std::vector<int64_t> ranks;
  for (const auto& rank : job.ranks) {
    if (rank.is_up()) ranks.push_back(rank.rank);
  }
  if (ranks.empty()) return "what its ranks started";
  if (ranks.size() > 1) return "ranks " + launch::to_list(ranks);
  const auto one = std::ranges::find_if(job.ranks, [](const auto& rank) { return rank.is_up(); });
  return fmt::format("rank {} (pid {})", one->rank, one->pid);
}

/// Reports on standard error which processes this command waits for, and reports changes.
class Waiting {
 public:
  explicit Waiting(launch::JobConnection& connection) : connection_(connection) {}

  void tell() {
    if (connection_.is_closed()) return;
    connection_.ask_job();
    const auto job = connection_.read_job(Clock::now() + milliseconds(200));
    if (!job || who_is_up(*job) == told_) return;
    told_ = who_is_up(*job);
    std::cerr << fmt::format("yoke stop: job {}: waiting for {}\n", connection_.address().pid, told_);
  }
  std::string whom() const { return told_.empty() ? "its ranks" : told_; }

 private:
  launch::JobConnection& connection_;
  std::string told_;
};

void wait_for_end(const device::ProcessHandle& launcher, Waiting& waiting, const StopArgs& args) {
  const auto limit = std::chrono::duration<double>(args.timeout_s > 0 ? args.timeout_s : 1e6);
  const auto until = Clock::now() + std::chrono::ceil<milliseconds>(limit);
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    if (launcher.wait_for_end(std::min<milliseconds>(left, kToldEvery))) return;
    waiting.tell();
    if (Clock::now() < until) continue;
    throw Error(ErrorCode::kTimeout, "after {} the job still waits for {}{}", format_duration(limit), waiting.whom(),
                args.now ? "" : "; --now kills");
  }
}

/// Gives an allocation back if `name` means one; false if it does not.
/// Errors  kInvalidArgument: it means a job, too, or several allocations.
bool stop_allocation(const StopArgs& args, Context& context) {
  if (args.job.empty()) return false;
  cluster::Allocation held;
  try {
    held = cluster::choose_held(args.job, context.environment);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) return false;
    throw;
  }
  if (args.now)
    throw Error(ErrorCode::kInvalidArgument, "--now is for a job; {} is an allocation", printable(args.job));
  const auto jobs = launch::find_jobs();
  const auto is_meant = [&](const auto& found) {
    return std::to_string(found.address.pid) == args.job || (found.job && found.job->run_id == args.job);
  };
  if (std::ranges::any_of(jobs, is_meant)) {
    throw Error(ErrorCode::kInvalidArgument,
                "{} is a job that runs here and an allocation of Slurm; `scancel {}` gives the allocation back, `kill` "
                "with the job's PID ends the job",
                args.job, held.job);
  }
  const auto limit = std::chrono::duration<double>(args.timeout_s > 0 ? args.timeout_s : kReleasePatience.count());
  release_allocation(held, std::chrono::ceil<milliseconds>(limit), context.environment);
  context.out << fmt::format("allocation {} is given back\n", held.job);
  return true;
}

int run_stop(const StopArgs& args, Context& context) {
  if (stop_allocation(args, context)) return kExitOk;
  const auto found = find(args.job);
  const auto pid = found.address.pid;
  const auto ended = [&] {
    context.out << fmt::format("job {} has ended\n", pid);
    return kExitOk;
  };
  auto connection = launch::JobConnection::open(found.address, Clock::now() + kStopPatience);
  if (!connection) return ended();
  const auto launcher = hold(pid);
  if (!launcher) return ended();
  connection->ask_stop(args.now);
  auto answer = connection->read_job(Clock::now() + (found.job ? kStopPatience : std::chrono::seconds(0)));
  if (!answer && !found.job && !connection->is_closed()) {
    launcher->signal(SIGCONT);  // a launcher that Ctrl-Z has stopped would not read the request
    answer = connection->read_job(Clock::now() + kStopPatience);
  }
  // An answer proves that the handle refers to the launcher, because the handle was made before the answer.
  if (!answer && !connection->is_closed()) throw does_not_answer(pid);
  Waiting waiting(*connection);
  wait_for_end(*launcher, waiting, args);
  return ended();
}

}  // namespace

void add_stop(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<StopArgs>();  // CLI11 keeps references to *args; the callback owns it
  add_job_option(cmd, args->job);
  cmd.add_flag("--now", args->now, "Kill the ranks at once, without the grace to save their work");
  cmd.add_option("--timeout", args->timeout_s,
                 "How long to wait; by default until the job has ended, and 90 s for an allocation")
      ->type_name("SECONDS")
      ->check(in_range(0.001, 86'400, "seconds"));
  cmd.footer(
      examples("  yoke stop 4121           as SIGTERM to `yoke run`: ranks get SIGTERM, and SIGKILL after --grace\n"
               "  yoke stop                the only job\n"
               "  yoke stop 4121 --now     kill at once\n"
               "  yoke stop debug          give an allocation back, by its job's id, its name or `last`\n"
               "\n"
               "Exit status: 0 when the job has ended; 124 when it has not within --timeout, or does not answer;\n"
               "66 when there is no such job; 75 if Slurm cannot be reached."));
  cmd.callback([args, &context] { context.exit_code = run_stop(*args, context); });
}

}  // namespace yoke::cli
