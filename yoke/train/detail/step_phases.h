// yoke/train/detail/step_phases.h -- where the time of a rank's steps goes, for the sentence of a Run about it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/clock.h"

namespace yoke::train::detail {

enum class Phase : uint8_t {
  kData,       ///< Waits for the next batch.
  kForward,    ///< Has the batch, until backward begins.
  kBackward,   ///< Until all gradients of this rank are computed.
  kWait,       ///< Waits until they are averaged over all ranks, that is for the last rank and for the exchange.
  kOptimizer,  ///< Until the optimizer has stepped.
  kOther,      ///< The rest of the loop's body, such as an evaluation, and what the Run does between two batches.
};
inline constexpr size_t kNumPhases = 6;

/// Nanoseconds in each phase, and beside them how long the loader's workers needed for the batch. They make it while
/// the rank does other things, also while it waits for the others, so it may be long although the rank has no phase
/// kData; but no step of the rank can be shorter. 0: not known.
struct PhaseTimes : std::array<int64_t, kNumPhases> {
  int64_t loading_ns = 0;

  bool operator==(const PhaseTimes&) const = default;
};

/// The times of an epoch's steps, as sums over windows of equally many steps. There are at most kMaxWindows: if there
/// would be more, the windows are joined in pairs. So ranks that have made equally many steps have the same windows.
class PhaseWindows {
 public:
  static constexpr size_t kMaxWindows = 64;
  static constexpr int64_t kFirstSteps = 8;

  void add(const PhaseTimes& step);
  void clear() { *this = PhaseWindows(); }

  int64_t steps_per_window() const { return steps_per_window_; }
  /// The complete windows.
  const std::vector<PhaseTimes>& windows() const { return windows_; }

 private:
  int64_t steps_per_window_ = kFirstSteps;
  std::vector<PhaseTimes> windows_;
  PhaseTimes current_ = {};
  int64_t num_current_ = 0;
};

/// Windows as bytes, for ranks on machines of the same byte order. from_bytes() returns none if the size is wrong.
std::string to_bytes(const std::vector<PhaseTimes>& windows);
std::vector<PhaseTimes> from_bytes(std::string_view bytes);

/// Divides the time of the thread that has made it into phases. It takes the time of a call of the clock (25 ns) for
/// each phase of a step.
///
/// Threads  the thread that has made it. Code of other threads, such as a backward of a GPU, is not seen: its time
///          belongs to the phase in which that thread is.
class PhaseClock {
 public:
  PhaseClock() = default;
  ~PhaseClock() { stop(); }
  PhaseClock(const PhaseClock&) = delete;
  PhaseClock& operator=(const PhaseClock&) = delete;

  void start(Phase phase);
  /// The time since start() or the last call, by phase. The clock runs on.
  PhaseTimes take();
  void stop();

 private:
  friend void enter(Phase phase);
  friend void note_loading(int64_t ns);
  friend class WaitForOthers;
  void enter_here(Phase phase);

  PhaseTimes times_ = {};
  Phase phase_ = Phase::kOther;
  Clock::time_point since_;
};

/// Tells the clock that runs on this thread, if any, that `phase` begins.
void enter(Phase phase);

/// Tells the clock that runs on this thread, if it is in Phase::kData, that its loader needs so long for such a batch:
/// the time of a worker divided by the number of workers.
void note_loading(int64_t ns);

/// While it lives, the clock that runs on this thread, if any, is in Phase::kWait; then again in the phase before. It
/// stands around a collective that the loop's body calls, such as for the figures of an evaluation.
class WaitForOthers {
 public:
  WaitForOthers();
  ~WaitForOthers() { enter(before_); }
  WaitForOthers(const WaitForOthers&) = delete;
  WaitForOthers& operator=(const WaitForOthers&) = delete;

 private:
  Phase before_ = Phase::kOther;
};

}  // namespace yoke::train::detail
