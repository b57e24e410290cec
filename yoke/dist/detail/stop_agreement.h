// yoke/dist/detail/stop_agreement.h -- tells all ranks, at the same call, that one of them was asked to stop.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>

namespace c10d {
class Backend;
class Work;
}  // namespace c10d

namespace yoke::dist {

/// Some calls read the result of the previous all-reduce and start a new all-reduce of this rank's flag, which overlaps
/// with the following steps. So all ranks read the same value at the same call, even if they got the signal at
/// different times. The message also carries the number of calls until the next all-reduce, computed from the duration
/// of steps. The aim is ten all-reduces per second, because on a busy CPU each of them takes a few tenths of a
/// millisecond from other threads. The calls in between do not communicate.
///
/// Ranks    collective: all ranks make the same number of calls.
/// Threads  one at a time.
class StopAgreement {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// `backend` is a Gloo backend that nothing else uses, so that these all-reduces do not mix with the user's
  /// collectives. `backend` is null if this is the only rank. Each call of should_stop() calls `is_told` once. `now` is
  /// the clock that steps are timed with.
  StopAgreement(c10::intrusive_ptr<c10d::Backend> backend, std::function<bool()> is_told,
                std::function<Time()> now = std::chrono::steady_clock::now);
  static constexpr int64_t kMaxInterval = 32;  ///< Limits the delay if later steps are slower.

  /// Does not wait for the all-reduce in flight, which other ranks may never join.
  ~StopAgreement();
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  /// Waits for an all-reduce.
  using Wait = std::function<void(c10d::Work& work)>;

  /// Returns true if any rank was told to stop, at most 2 * kMaxInterval calls later. After that, always returns true.
  /// Throws c10d's errors, and those of `wait`.
  bool should_stop(const Wait& wait);

  /// Collective. Waits for the all-reduce in flight.
  void finish(const Wait& wait);

 private:
  int64_t wanted_interval() const;

  c10::intrusive_ptr<c10d::Backend> backend_;
  const std::function<bool()> is_told_;
  const std::function<Time()> now_;
  at::Tensor message_;  ///< [2], the data of the all-reduce in flight: the flag and the wanted interval.
  c10::intrusive_ptr<c10d::Work> pending_;
  bool is_agreed_ = false;
  int64_t interval_ = 1;  ///< Number of calls from one all-reduce to the next, equal on all ranks.
  int64_t calls_left_ = 1;
  Time last_start_;
};

}  // namespace yoke::dist
