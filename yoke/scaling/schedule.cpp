#include "yoke/scaling/schedule.h"

#include <algorithm>
#include <limits>

#include "yoke/base/error.h"

namespace yoke::scaling {
namespace {

/// A queue of tasks at some time of the simulation.
class Queue {
 public:
  explicit Queue(std::span<const Task> tasks) : tasks_(tasks) { load(); }

  bool is_done() const { return next_ == tasks_.size(); }
  bool can_run(const Queue& other) const {
    return !is_done() && (!tasks_[next_].after || other.next_ > *tasks_[next_].after);
  }
  double remaining() const { return remaining_; }
  void advance(double seconds) { remaining_ -= seconds; }
  void finish() {
    ++next_;
    load();
  }

 private:
  void load() { remaining_ = is_done() ? 0 : tasks_[next_].seconds; }

  std::span<const Task> tasks_;
  size_t next_ = 0;
  double remaining_ = 0;
};

}  // namespace

ScheduleResult simulate(std::span<const Task> compute, std::span<const Task> link, double contention) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  Queue computing(compute), communicating(link);
  ScheduleResult result;
  double computed = 0;
  while (!computing.is_done() || !communicating.is_done()) {
    const bool computes = computing.can_run(communicating), communicates = communicating.can_run(computing);
    if (!computes && !communicates) throw Error(ErrorCode::kInternal, "the tasks of a step wait for each other");
    const double rate = communicates && communicating.remaining() > 0 ? 1 - contention : 1;
    double compute_end = kNever;
    if (computes && computing.remaining() <= 0) {
      compute_end = 0;
    } else if (computes && rate > 0) {
      compute_end = computing.remaining() / rate;
    }
    const double link_end = communicates ? communicating.remaining() : kNever;
    const double passed = std::min(compute_end, link_end);
    result.seconds += passed;
    if (communicates) communicating.advance(passed);
    if (computes) {
      computing.advance(passed * rate);
      computed += passed * rate;
    }
    if (link_end <= compute_end) {
      communicating.finish();
    } else {
      computing.finish();
    }
  }
  result.waiting_seconds = result.seconds - computed;
  return result;
}

}  // namespace yoke::scaling
