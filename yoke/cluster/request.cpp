#include "yoke/cluster/request.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>

#include <algorithm>
#include <csignal>

#include "yoke/base/command_output.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/hostlist.h"
#include "yoke/base/moment.h"
#include "yoke/base/text.h"
#include "yoke/cluster/held.h"
#include "yoke/contract/variables.h"
#include "yoke/launch/process/signals.h"
#include "yoke/slurm/job/submit.h"

namespace yoke::cluster {
namespace {

using std::chrono::system_clock;

constexpr std::chrono::milliseconds kFileEvery{100}, kLongestPause{15'000};
constexpr std::chrono::seconds kNewsEvery{60};
/// How long after its start an allocation may take to tell its nodes. After that, the home is not shared.
constexpr std::chrono::seconds kKeeperTime{60};
constexpr size_t kShownLogLines = 5;

/// Files can outlive their allocation, so Slurm is asked before a name is refused.
void check_name_is_free(const std::string& name, const Environment& environment) {
  for (const auto& held : held_allocations(environment)) {
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
  remove_allocation(written);
  const auto refusal = slurm::refusal_of(output);
  if (!is_accepted && refusal.code() != ErrorCode::kTimeout) throw refusal;
  throw Error(ErrorCode::kUnavailable,
              "{}; so a job may be in the queue all the same: `squeue --me --name={}` shows it, `scancel` ends it",
              is_accepted ? "sbatch printed no job's id" : refusal.what(),
              request.name.empty() ? slurm::kHoldingName : request.name);
}

/// Of the errors of this command, only the end of --wait is a timeout, so that scripts can tell it from others.
std::string cluster_here(const Environment& environment) {
  try {
    return slurm::cluster_name(environment);
  } catch (const Error& error) {
    throw Error(error.code() == ErrorCode::kTimeout ? ErrorCode::kUnavailable : error.code(), "{}", error.what());
  }
}

}  // namespace

std::string left_text(int64_t until) {
  if (until == 0) return "";
  const auto end = system_clock::from_time_t(until);
  const auto left = std::chrono::ceil<std::chrono::seconds>(end - system_clock::now());
  return left.count() > 0 ? format_rough_duration(left) : "over";
}

RequestedAllocation::RequestedAllocation(RequestOptions options, const Environment& environment)
    : options_(std::move(options)), environment_(environment) {
  auto& wanted = options_.request;
  request_ = {.job = "", .name = wanted.name, .secret = "", .yoke = options_.yoke, .nodes = {}};
  request_.file = new_allocation_file(environment);
  if (!wanted.name.empty()) {
    names_ = UniqueFd(open(request_.file.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    flock(names_.value(), LOCK_EX);  // fails on file systems without locks
    check_name_is_free(wanted.name, environment);
  }
  wanted.program = {options_.yoke, "agent", "--keep"};
  auto variables = slurm::without_outer_job(environment);
  for (const auto* name : {"SBATCH_CLUSTERS", "SBATCH_WAIT", "SBATCH_ARRAY_INX", "SBATCH_REQUEUE"})
    variables.erase(name);
  variables.set(variable::kAllocFile, request_.file.string());
  request_.cluster = cluster_here(environment);
  signals_.emplace();  // from here on, no signal leaves a request behind
  launch::fail_instead_of(SIGXFSZ);
  launch::fail_instead_of(SIGPIPE);
  request_.job = submit(wanted, written(), variables);
  began_ = Clock::now();
  next_question_ = began_ + kFirstQuestion;
  next_news_ = next_count_ = began_;
}

std::optional<Allocation> RequestedAllocation::wait() {
  try {
    write_allocation(written());
    names_.reset();
    return wait_for_start();
  } catch (const Error& error) {
    if (is_over_) throw;
    cancel();
    throw Error(error.code(), "{}; request {} is cancelled", error.what(), request_.job);
  }
}

std::optional<Allocation> RequestedAllocation::wait_for_start() {
  while (true) {
    if (auto allocation = read_allocation(request_.file)) return allocation;
    if (Clock::now() >= next_question_) {
      if (auto allocation = look()) return allocation;
    }
    if (options_.limit && Clock::now() >= began_ + *options_.limit) {
      cancel();
      throw Error(ErrorCode::kTimeout, "allocation {} did not start within {}{}{}; the request is cancelled",
                  request_.job, format_rough_duration(*options_.limit), reason_.empty() ? "" : ": ", reason_);
    }
    pollfd news{signals_->fd(), POLLIN, 0};
    poll(&news, 1, kFileEvery.count());
    while (const auto message = signals_->next()) {
      if (message->signal == SIGCHLD || message->signal == SIGUSR1 || message->signal == SIGUSR2) continue;
      cancel();
      options_.tell(Told::kNews, fmt::format("request {} is cancelled", request_.job));
      signal_ = message->signal;
      return std::nullopt;
    }
  }
}

void RequestedAllocation::cancel() {
  is_over_ = true;
  try {
    cancel_job(request_.job, environment_);
  } catch (const Error& error) {
    throw Error(ErrorCode::kUnavailable, "{}; so request {} is still there: run `scancel {}` when Slurm answers",
                error.what(), request_.job, request_.job);
  }
  remove_allocation(request_);
}

/// As it stands in the file of the request.
Allocation RequestedAllocation::written() const {
  auto written = request_;
  written.file = request_file(request_.file);
  return written;
}

/// Asks Slurm how far the job is.
std::optional<Allocation> RequestedAllocation::look() {
  pause_ = std::min(pause_ * 3 / 2, kLongestPause);
  next_question_ = Clock::now() + pause_;
  std::optional<slurm::Job> job;
  try {
    job = slurm::find_job(request_.job, environment_);
  } catch (const Error& error) {
    tell(fmt::format("{}; still waiting for allocation {}", error.what(), request_.job));
    return std::nullopt;
  }
  const auto phase = job ? phase_of(*job) : slurm::Phase::kEnded;
  if (phase == slurm::Phase::kWaiting) {
    tell_why(*job);
  } else if (phase == slurm::Phase::kHeld) {
    if (!started_) started_ = Clock::now();
    if (Clock::now() >= *started_ + kKeeperTime) return without_keeper(*job);
  } else {
    fail();
  }
  return std::nullopt;
}

void RequestedAllocation::tell_why(const slurm::Job& job) {
  reason_ = slurm::why_waiting(job.reason);
  auto text = fmt::format("allocation {} waits: {}", request_.job, reason_);
  if (Clock::now() >= next_count_ && (job.reason == "Priority" || job.reason == "Resources")) {
    next_count_ = Clock::now() + kNewsEvery;  // a long queue is a long answer
    try {
      num_before_ = jobs_before(job, environment_);
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
void RequestedAllocation::tell(const std::string& text) {
  const auto beginning = text.substr(0, text.find(';'));
  if (text == told_ || (beginning == told_beginning_ && Clock::now() < next_news_)) return;
  told_ = text;
  told_beginning_ = beginning;
  next_news_ = Clock::now() + kNewsEvery;
  options_.tell(Told::kNews, text);
}

/// The job runs, but no file of its keeper is here.
std::optional<Allocation> RequestedAllocation::without_keeper(const slurm::Job& job) {
  for (const auto& name : expand_hostlist(job.node_list)) {
    request_.nodes.push_back({.name = name, .address = name});
  }
  request_.until = end_of(job);
  write_allocation(written());
  options_.tell(Told::kNews,
                fmt::format("the nodes did not tell where their agents are, perhaps because they do not share {} with "
                            "this host, or because the agents are still starting; commands use srun, which is slower",
                            request_.file.parent_path().string()));
  return request_;
}

void RequestedAllocation::fail() {
  end_allocation(request_);
  const auto why = end_of_allocation(request_.job, false, environment_);  // it names the log that is kept
  std::string said;
  try {
    const auto log = kept_log(request_.job, environment_);
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

}  // namespace yoke::cluster
