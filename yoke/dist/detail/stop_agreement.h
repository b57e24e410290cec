// yoke/dist/detail/stop_agreement.h -- whether any rank has been told to stop, known to all ranks at the same call.
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

/// Now and then a call starts an all-reduce of this rank's flag and reads the result of the one before: it overlaps
/// with the steps in between, and all ranks read the same value at the same call, whatever they were told in the
/// meantime. With the flag travels how many calls later the next one is wanted, from the time that steps take: about
/// ten in a second, for on a busy CPU each costs a few tenths of a millisecond of other threads' time; a call in
/// between costs nothing.
///
/// Ranks    collective: all ranks make the same number of calls.
/// Threads  one at a time.
class StopAgreement {
 public:
  /// `backend`: Gloo, and nobody else's, or its order would mix with that of the user's collectives; null: this rank is
  /// alone. `is_told` is asked once a call.
  StopAgreement(c10::intrusive_ptr<c10d::Backend> backend, std::function<bool()> is_told);
  static constexpr int64_t kMaxInterval = 32;  ///< Steps may become slower than they were.

  /// Does not wait for an all-reduce that other ranks have not joined.
  ~StopAgreement();
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  /// True: a rank had been told, at most 2 * kMaxInterval calls ago. It stays true. Throws what c10d throws.
  bool should_stop();

  /// Collective. Waits for what the last call started.
  void finish();

 private:
  int64_t wanted_interval() const;

  c10::intrusive_ptr<c10d::Backend> backend_;
  const std::function<bool()> is_told_;
  at::Tensor message_;  ///< [2], of the all-reduce in flight: told or not, wanted interval.
  c10::intrusive_ptr<c10d::Work> pending_;
  bool is_agreed_ = false;
  int64_t interval_ = 1;  ///< Calls from one all-reduce to the next; agreed.
  int64_t calls_left_ = 1;
  std::chrono::steady_clock::time_point last_start_;
};

}  // namespace yoke::dist
