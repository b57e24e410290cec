// yoke/cluster/request.h -- requests an allocation of Slurm that is held, and waits for its start.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "yoke/base/clock.h"
#include "yoke/base/environment.h"
#include "yoke/base/file.h"
#include "yoke/base/tell.h"
#include "yoke/cluster/allocation.h"
#include "yoke/program/watched_program.h"
#include "yoke/slurm/job/holding.h"

namespace yoke::cluster {

struct RequestOptions {
  slurm::HoldingRequest request;                   ///< Without HoldingRequest::program.
  std::string yoke;                                ///< The path of yoke on the nodes.
  std::optional<std::chrono::seconds> limit = {};  ///< How long it may wait for its start.
  Tell tell;                                       ///< Gets news: why it waits, that it was cancelled.
};

/// A request in the queue of Slurm. REQUIRES: this process has one thread, and no SignalMessages exists.
class RequestedAllocation {
 public:
  /// Submits it. Errors  kFailedPrecondition: the user holds an allocation of this name, or Slurm refuses;
  /// kUnavailable: Slurm does not answer, and a job may be in the queue; those of slurm::ask().
  RequestedAllocation(RequestOptions options, const Environment& environment);

  /// Waits until it is held. Returns nullopt if a signal ended the wait; then the request was cancelled.
  /// Errors  kTimeout: the limit is over; kFailedPrecondition: the job has ended; others as errno says, as on a full
  /// disk. Nothing is left then.
  std::optional<Allocation> wait();
  int signal() const { return signal_; }

  /// Gives it back. Errors  kUnavailable: Slurm does not answer, so it is still there.
  void cancel();

 private:
  static constexpr std::chrono::milliseconds kFirstQuestion{300};

  Allocation written() const;
  std::optional<Allocation> wait_for_start();
  std::optional<Allocation> look();
  void tell_why(const slurm::Job& job);
  void tell(const std::string& text);
  std::optional<Allocation> without_keeper(const slurm::Job& job);
  [[noreturn]] void fail();

  RequestOptions options_;
  const Environment environment_;
  Allocation request_;
  UniqueFd names_;  ///< A lock: of several requests at once with one name, the first gets it.
  std::optional<program::SignalMessages> signals_;
  Clock::time_point began_, next_question_, next_news_, next_count_;
  std::chrono::milliseconds pause_ = kFirstQuestion;
  std::optional<Clock::time_point> started_;
  std::optional<int64_t> num_before_;
  std::string reason_, told_, told_beginning_;
  int signal_ = 0;
  bool is_over_ = false;  ///< The job has ended or was to be cancelled.
};

/// "2h", "over", or "" for 0: how long it is until then, in seconds since 1970.
std::string left_text(int64_t until);

}  // namespace yoke::cluster
