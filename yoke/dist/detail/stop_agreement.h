// yoke/dist/detail/stop_agreement.h -- lets all ranks learn at the same call that one of them has been told to stop.
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

/// Some calls start an all-reduce of this rank's flag and read the result of the previous all-reduce. An all-reduce
/// overlaps with the steps until the next one. All ranks read the same value at the same call, whenever each of them
/// got the signal. The message also carries the number of calls until the next all-reduce, computed from the time that
/// steps take. The aim is ten all-reduces per second, because on a busy CPU each takes a few tenths of a millisecond
/// from other threads. The calls in between do not communicate.
///
/// Ranks    collective: all ranks make the same number of calls.
/// Threads  one at a time.
class StopAgreement {
 public:
  /// `backend` is a Gloo backend that nothing else uses, so that these all-reduces do not mix with the user's
  /// collectives. Null means that this rank is alone. Each call of should_stop() calls `is_told` once.
  StopAgreement(c10::intrusive_ptr<c10d::Backend> backend, std::function<bool()> is_told);
  static constexpr int64_t kMaxInterval = 32;  ///< A limit, because later steps may be slower.

  /// Does not wait for an all-reduce that other ranks have not joined.
  ~StopAgreement();
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  /// Returns true if a rank was told to stop, at most 2 * kMaxInterval calls after that. Later calls return true too.
  /// Throws what c10d throws.
  bool should_stop();

  /// Collective. Waits for the all-reduce in flight.
  void finish();

 private:
  int64_t wanted_interval() const;

  c10::intrusive_ptr<c10d::Backend> backend_;
  const std::function<bool()> is_told_;
  at::Tensor message_;  ///< [2], the all-reduce in flight: the flag and the wanted interval.
  c10::intrusive_ptr<c10d::Work> pending_;
  bool is_agreed_ = false;
  int64_t interval_ = 1;  ///< Calls from one all-reduce to the next, as the ranks agreed.
  int64_t calls_left_ = 1;
  std::chrono::steady_clock::time_point last_start_;
};

}  // namespace yoke::dist
