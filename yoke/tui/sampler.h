// yoke/tui/sampler.h -- takes samples on a thread of its own, so that keys never wait for a device.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "yoke/base/file.h"
#include "yoke/device/source.h"
#include "yoke/tui/ancestors.h"
#include "yoke/tui/model.h"

namespace yoke::tui {

struct SamplerOptions {
  std::chrono::milliseconds interval = std::chrono::seconds(1);
  std::filesystem::path sysroot = "/";
  bool is_recording = false;  ///< Plays at the pace at which it was made; `interval` does not matter then.
};

class Sampler {
 public:
  /// `source` must outlive it, and is used by nobody else meanwhile. Errors  kUnavailable: out of descriptors.
  Sampler(device::Source& source, const SamplerOptions& options, const WantOfPage& want);
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  ~Sampler();  ///< Waits for the sample that is being taken.

  /// For the next sample, which comes at once where more is wanted than before.
  void set_want(const WantOfPage& want);

  /// Becomes readable with a sample.
  int ready_fd() const { return ready_.value(); }

  /// The latest sample, once. Errors  whatever ended the sampling.
  std::optional<Sample> take();

 private:
  using Clock = std::chrono::steady_clock;

  void run() noexcept;
  void sample_live();
  void play_recording();
  void deliver(Sample sample);
  /// False when it is time to end. `wakes_on_want`: set_want ends the pause.
  bool pause_until(Clock::time_point time, bool wakes_on_want);

  device::Source& source_;
  const SamplerOptions options_;
  UniqueFd ready_;
  std::mutex mutex_;
  std::condition_variable changed_;
  WantOfPage want_;
  bool is_more_wanted_ = false;
  bool must_stop_ = false;
  std::optional<Sample> latest_;
  std::optional<std::string> failure_;
  std::thread thread_;  ///< Last: it uses all of the above.
};

/// One sample, now.
Sample take_sample(device::Source& source, const SamplerOptions& options, const WantOfPage& want);

}  // namespace yoke::tui
