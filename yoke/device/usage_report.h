// yoke/device/usage_report.h -- computes how well a program used its devices, from samples taken while it ran.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "yoke/device/device.h"

namespace yoke::device {

using Seconds = std::chrono::duration<double>;

/// One of the equal intervals into which a run is divided. In a longer run they are longer. nullopt means that the
/// value is not known.
struct UsageBin {
  std::optional<double> utilization_percent, memory_percent;

  bool operator==(const UsageBin&) const = default;
};

/// The figures of one device, over the whole run unless a comment says otherwise.
struct DeviceUsage {
  std::string id, uuid, name;
  bool was_used = false;  ///< Whether a process of the program was seen on it.
  Seconds unknown{0};     ///< The time without a reading of utilisation.
  std::optional<double> mean_percent, p5_percent, p50_percent, p95_percent;  ///< Utilisation.
  std::optional<double> under_goal_percent;  ///< Share of the time in which utilisation was below the goal.
  Seconds first_used{0}, last_used{0};       ///< Time since the start. REQUIRES: was_used.
  std::optional<double> mean_while_used_percent;
  std::optional<int64_t> memory_peak_bytes, memory_total_bytes;  ///< Memory of all programs on the device.
  std::optional<int64_t> program_memory_peak_bytes;              ///< Memory of the program's processes.
  std::optional<int64_t> mean_power_mw, peak_power_mw;
  std::optional<int64_t> energy_mj;
  bool is_energy_counted = false;  ///< Whether the device counts energy; otherwise energy_mj is power times time.
  std::map<std::string, double> throttled_percent;  ///< For each reason except idleness, its share of the time.
  Seconds bin{0};
  std::vector<UsageBin> timeline;
};

struct UsageReport {
  Seconds duration{0};
  int64_t num_samples = 0;
  double goal_percent = 90;
  std::vector<DeviceUsage> devices;  ///< The devices that the program used; if it used none, all watched devices.
};

/// Records samples in constant memory, however long the run is.
class UsageRecorder {
 public:
  struct Options {
    double goal_percent = 90;
    Seconds interval{0.5};
    /// Which devices to watch, by their ids ("3", "0:1", "cpu"). If unset, all GPUs are watched.
    std::function<bool(const std::string& id)> is_watched;
  };
  explicit UsageRecorder(Options options) : options_(std::move(options)) {}

  /// Adds a sample for the interval from the previous sample until `time`, which counts from the start. `is_ours` says
  /// whether a process belongs to the program. If the interval is very long (the machine or this process slept), only
  /// its last part counts as known.
  void add(Seconds time, const Snapshot& snapshot, const std::function<bool(const DeviceProcess&)>& is_ours);

  UsageReport report(Seconds duration) const;

 private:
  struct Sum {
    double total = 0, seconds = 0;
    void add(double value, double weight) {
      total += value * weight;
      seconds += weight;
    }
    std::optional<double> mean() const { return seconds > 0 ? std::optional(total / seconds) : std::nullopt; }
  };
  struct Bin {
    Sum utilization, memory;
  };
  struct Track {
    Device last;  ///< The device's last state, without its processes.
    bool was_used = false;
    Seconds first_used{0}, last_used{0};
    std::array<double, 101> seconds_at = {};  ///< Index i: the seconds at a utilisation of i percent.
    double unknown = 0;
    Sum utilization, utilization_in_use, power;
    std::optional<int64_t> memory_peak, memory_total, program_memory_peak, power_peak;
    std::optional<int64_t> first_energy, last_energy;
    bool energy_is_continuous = true;
    std::map<std::string, double> throttled;
    double throttle_known = 0;
    double bin_seconds = 0;
    std::vector<Bin> bins;
  };

  void add(Seconds time, double known, double gap, const Device& device, const std::string& id,
           const std::function<bool(const DeviceProcess&)>& is_ours);
  static void add_to_timeline(Track& track, Seconds time, double weight);
  DeviceUsage usage_of(const std::string& id, const Track& track) const;

  Options options_;
  std::optional<Seconds> last_time_;
  int64_t num_samples_ = 0;
  std::vector<std::string> order_;
  std::map<std::string, Track> tracks_;
};

}  // namespace yoke::device
