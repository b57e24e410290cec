#include "yoke/launch/job/stop.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "yoke/base/clock.h"
#include "yoke/base/cpu_set.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/device/process/info.h"
#include "yoke/device/process/signal.h"

namespace yoke::launch {
namespace {

using std::chrono::milliseconds;

/// How long to wait for a launcher's answer. A launcher normally answers in the next turn of its event loop.
constexpr std::chrono::seconds kStopPatience{5};
constexpr std::chrono::seconds kToldEvery{1};

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

std::string who_is_up(const Job& job) {
  std::vector<int64_t> ranks;
  for (const auto& rank : job.ranks) {
    if (rank.is_up()) ranks.push_back(rank.rank);
  }
  if (ranks.empty()) return "what its ranks started";
  if (ranks.size() > 1) return "ranks " + to_list(ranks);
  const auto one = std::ranges::find_if(job.ranks, [](const auto& rank) { return rank.is_up(); });
  return fmt::format("rank {} (pid {})", one->rank, one->pid);
}

/// Tells which processes are waited for, and tells changes.
class Waiting {
 public:
  Waiting(JobConnection& connection, const Tell& tell) : connection_(connection), tell_(tell) {}

  void tell() {
    if (connection_.is_closed()) return;
    connection_.ask_job();
    const auto job = connection_.read_job(Clock::now() + milliseconds(200));
    if (!job || who_is_up(*job) == told_) return;
    told_ = who_is_up(*job);
    if (tell_) tell_(Told::kNews, fmt::format("job {}: waiting for {}", connection_.address().pid, told_));
  }
  std::string whom() const { return told_.empty() ? "its ranks" : told_; }

 private:
  JobConnection& connection_;
  const Tell& tell_;
  std::string told_;
};

void wait_for_end(const device::ProcessHandle& launcher, Waiting& waiting, const StopOptions& options) {
  const auto limit = options.timeout.value_or(std::chrono::duration<double>(1e6));
  const auto until = Clock::now() + std::chrono::ceil<milliseconds>(limit);
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    if (launcher.wait_for_end(std::min<milliseconds>(left, kToldEvery))) return;
    waiting.tell();
    if (Clock::now() < until) continue;
    throw Error(ErrorCode::kTimeout, "after {} the job still waits for {}{}", format_duration(limit), waiting.whom(),
                options.now ? "" : "; --now kills");
  }
}

}  // namespace

void stop(const FoundJob& found, const StopOptions& options) {
  const auto pid = found.address.pid;
  auto connection = JobConnection::open(found.address, Clock::now() + kStopPatience);
  if (!connection) return;
  const auto launcher = hold(pid);
  if (!launcher) return;
  connection->ask_stop(options.now);
  auto answer = connection->read_job(Clock::now() + (found.job ? kStopPatience : std::chrono::seconds(0)));
  if (!answer && !found.job && !connection->is_closed()) {
    launcher->signal(SIGCONT);  // a launcher that Ctrl-Z has stopped would not read the request
    answer = connection->read_job(Clock::now() + kStopPatience);
  }
  // An answer proves that the handle refers to the launcher, because the handle was made before the answer.
  if (!answer && !connection->is_closed()) throw does_not_answer(pid);
  Waiting waiting(*connection, options.tell);
  wait_for_end(*launcher, waiting, options);
}

}  // namespace yoke::launch
