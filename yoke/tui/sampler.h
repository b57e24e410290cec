// yoke/tui/sampler.h -- takes samples on its own thread, so that keys never wait for a device.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/device/source.h"
#include "yoke/device/worker.h"
#include "yoke/tui/model.h"

namespace yoke::tui {

struct SamplerOptions {
  std::chrono::milliseconds interval = std::chrono::seconds(1);
  std::filesystem::path sysroot = "/";
  /// Reads who has claimed which device; may be empty. Called on the thread that takes the samples.
  std::function<std::vector<view::ClaimRow>(const device::Snapshot&)> read_claims = {};
  bool is_recording = false;  ///< A recording is played at its original pace, without `interval`.
};

class Sampler {
 public:
  /// `source` must outlive the sampler. Until then no other code may use it.
  /// Errors  kUnavailable: out of descriptors.
  Sampler(device::Source& source, const SamplerOptions& options, const WantOfPage& want);
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  ~Sampler();  ///< Waits for the sample that is being taken.

  /// Sets what the next sample reads. If this is more than before, the sample is taken at once.
  void set_want(const WantOfPage& want);

  /// Becomes readable when a sample is available.
  int ready_fd() const { return ready_.value(); }

  /// Takes the latest sample. Throws the error that ended the sampling, if there was one.
  std::optional<Sample> take();

 private:
  using Clock = std::chrono::steady_clock;

  void run() noexcept;
  void sample_live();
  void play_recording();
  void deliver(Sample sample);
  /// Returns false if the thread must end. With `wakes_on_want`, set_want() ends the pause.
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
  std::thread thread_;  ///< The last member, because it uses all other members.
};

using Processes = std::map<int64_t, device::ProcessInfo>;  ///< Indexed by PID.

/// Reads the parents of processes, with a time limit, because /proc may hang.
class AncestorReader {
 public:
  explicit AncestorReader(const std::filesystem::path& proc);

  /// Returns the ancestors of all processes in `snapshot`, up to process 1. If /proc does not answer within `limit`,
  /// returns the ancestors from the last answer.
  Processes read(const device::Snapshot& snapshot, std::chrono::milliseconds limit);

 private:
  struct Exchange;
  std::shared_ptr<Exchange> exchange_;
  device::Worker worker_;
};

/// Reads the files below `sysroot`.
Host read_host(const std::filesystem::path& sysroot);

// The pure parts of read_host().
std::optional<std::array<double, 3>> parse_loadavg(std::string_view text);
/// Parses the swap sizes in /proc/meminfo.
Host parse_meminfo(std::string_view text);

/// Takes one sample at once.
Sample take_sample(device::Source& source, const SamplerOptions& options, const WantOfPage& want);

}  // namespace yoke::tui
