#include "yoke/train/detail/step_phases.h"

#include <cstring>
#include <utility>

namespace yoke::train::detail {
namespace {

thread_local PhaseClock* running = nullptr;

void add_to(PhaseTimes& sum, const PhaseTimes& times) {
  for (size_t i = 0; i < kNumPhases; ++i) sum[i] += times[i];
  sum.loading_ns += times.loading_ns;
}

}  // namespace

void PhaseWindows::add(const PhaseTimes& step) {
  add_to(current_, step);
  if (++num_current_ < steps_per_window_) return;
  windows_.push_back(current_);
  current_ = {};
  num_current_ = 0;
  if (windows_.size() < kMaxWindows) return;
  for (size_t i = 0; i < kMaxWindows / 2; ++i) {
    windows_[i] = windows_[2 * i];
    add_to(windows_[i], windows_[2 * i + 1]);
  }
  windows_.resize(kMaxWindows / 2);
  steps_per_window_ *= 2;
}

std::string to_bytes(const std::vector<PhaseTimes>& windows) {
  std::string bytes(windows.size() * sizeof(PhaseTimes), '\0');
  if (!windows.empty()) std::memcpy(bytes.data(), windows.data(), bytes.size());
  return bytes;
}

std::vector<PhaseTimes> from_bytes(std::string_view bytes) {
  if (bytes.size() % sizeof(PhaseTimes) != 0) return {};
  std::vector<PhaseTimes> windows(bytes.size() / sizeof(PhaseTimes));
  if (!windows.empty()) std::memcpy(windows.data(), bytes.data(), bytes.size());
  return windows;
}

void PhaseClock::start(Phase phase) {
  times_ = {};
  phase_ = phase;
  since_ = Clock::now();
  running = this;
}

void PhaseClock::stop() {
  if (running == this) running = nullptr;
}

void PhaseClock::enter_here(Phase phase) {
  const auto now = Clock::now();
  times_[static_cast<size_t>(phase_)] += std::chrono::nanoseconds(now - since_).count();
  phase_ = phase;
  since_ = now;
}

PhaseTimes PhaseClock::take() {
  enter_here(phase_);
  return std::exchange(times_, PhaseTimes{});
}

void enter(Phase phase) {
  if (running != nullptr) running->enter_here(phase);
}

WaitForOthers::WaitForOthers() {
  if (running == nullptr) return;
  before_ = running->phase_;
  running->enter_here(Phase::kWait);
}

void note_loading(int64_t ns) {
  if (running != nullptr && running->phase_ == Phase::kData) running->times_.loading_ns += ns;
}

}  // namespace yoke::train::detail
