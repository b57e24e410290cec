#include "yoke/web/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "yoke/base/json.h"
#include "yoke/base/text.h"

namespace yoke::web {
namespace {

using device::Device;
using device::DeviceProcess;
using device::Facts;
using device::Readings;
using device::Snapshot;
using device::State;

constexpr size_t kMaxLabelBytes = 128;
constexpr size_t kMaxCommandBytes = 64;

/// Collects samples. Prometheus requires the samples of one name together. A name without samples is left out.
class Exposition {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    header_ = fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
  }

  void sample(std::string_view labels, double value) {
    text_ += header_;
    header_.clear();
    text_ += labels.empty() ? fmt::format("{} {}\n", name_, value) : fmt::format("{}{{{}}} {}\n", name_, labels, value);
  }

  std::string take() { return std::move(text_); }

 private:
  std::string name_, header_, text_;
};

/// A device or MIG instance, and the labels that all its samples have.
struct Unit {
  const Device& device;
  std::string labels;

  bool is_up() const { return is_answering(device); }
};

std::string label(std::string_view name, std::string_view text, size_t max_bytes = kMaxLabelBytes) {
  return fmt::format("{}=\"{}\"", name, label_value(text, max_bytes));
}

/// Returns nothing for an empty text, because Prometheus treats an empty label as missing.
std::string more_label(std::string_view name, std::string_view text, size_t max_bytes = kMaxLabelBytes) {
  return text.empty() ? "" : "," + label(name, text, max_bytes);
}

std::vector<Unit> units_of(const Snapshot& snapshot) {
  std::vector<Unit> units;
  device::for_each_device(snapshot, [&](const Device& device, const std::string& id) {
    units.push_back({device, label("device", id) + more_label("uuid", device.facts.uuid)});
  });
  return units;
}

/// A number of the model and its metric. The number times `factor`, divided by `divisor`, is in the metric's base unit.
template <typename Part, typename Value = int64_t>
struct Quantity {
  const char* name;
  const char* type;
  const char* help;
  std::optional<Value> Part::*number;
  double factor = 1;
  double divisor = 1;
  const char* label = "";
};

// Samples of one metric must follow each other.
constexpr Quantity<Readings> kReadings[] = {
    {"memory_total_bytes", "gauge", "Memory of the device.", &Readings::memory_total_bytes},
    {"memory_used_bytes", "gauge", "Memory in use, without what driver and firmware reserve where they tell.",
     &Readings::memory_used_bytes},
    {"memory_free_bytes", "gauge", "Memory that can be allocated.", &Readings::memory_free_bytes},
    {"memory_reserved_bytes", "gauge", "Memory that driver and firmware keep for themselves.",
     &Readings::memory_reserved_bytes},
    {"utilization_ratio", "gauge", "Share of the driver's last period in which the device computed, 0 to 1.",
     &Readings::utilization_percent, 1, 100},
    {"memory_utilization_ratio", "gauge", "Share of the last period in which memory was read or written, 0 to 1.",
     &Readings::memory_utilization_percent, 1, 100},
    {"encoder_utilization_ratio", "gauge", "Use of the video encoder, 0 to 1.", &Readings::encoder_utilization_percent,
     1, 100},
    {"decoder_utilization_ratio", "gauge", "Use of the video decoder, 0 to 1.", &Readings::decoder_utilization_percent,
     1, 100},
    {"temperature_celsius", "gauge", "Temperature of the processor.", &Readings::temperature_celsius},
    {"memory_temperature_celsius", "gauge", "Temperature of the memory.", &Readings::memory_temperature_celsius},
    {"fan_speed_ratio", "gauge", "Speed of the fan as a part of its maximum, 0 to 1.", &Readings::fan_percent, 1, 100},
    {"power_watts", "gauge", "Power drawn.", &Readings::power_mw, 1, 1e3},
    {"power_limit_watts", "gauge", "Power that the device may draw.", &Readings::power_limit_mw, 1, 1e3},
    {"energy_joules_total", "counter", "Energy used since the driver was loaded.", &Readings::energy_mj, 1, 1e3},
    {"clock_hertz", "gauge", "Clocks.", &Readings::clock_sm_mhz, 1e6, 1, ",clock=\"sm\""},
    {"clock_hertz", "gauge", "", &Readings::clock_memory_mhz, 1e6, 1, ",clock=\"memory\""},
    {"clock_hertz", "gauge", "", &Readings::clock_graphics_mhz, 1e6, 1, ",clock=\"graphics\""},
    {"clock_hertz", "gauge", "", &Readings::clock_video_mhz, 1e6, 1, ",clock=\"video\""},
    {"pcie_generation", "gauge", "Generation at which the PCIe link runs; lower while idle.",
     &Readings::pcie_generation},
    {"pcie_lanes", "gauge", "Lanes of the PCIe link.", &Readings::pcie_width},
    {"pcie_replays_total", "counter", "Packets sent again over PCIe.", &Readings::pcie_replays},
    {"ecc_errors_total", "counter", "Memory errors since the driver was loaded.", &Readings::ecc_corrected_volatile, 1,
     1, ",severity=\"corrected\""},
    {"ecc_errors_total", "counter", "", &Readings::ecc_uncorrected_volatile, 1, 1, ",severity=\"uncorrected\""},
    {"ecc_lifetime_errors_total", "counter", "Memory errors in the device's life.", &Readings::ecc_corrected_aggregate,
     1, 1, ",severity=\"corrected\""},
    {"ecc_lifetime_errors_total", "counter", "", &Readings::ecc_uncorrected_aggregate, 1, 1,
     ",severity=\"uncorrected\""},
    {"retired_pages", "gauge", "Pages of memory taken out of service.", &Readings::retired_pages},
    {"remapped_rows", "gauge", "Rows of memory replaced by spare ones.", &Readings::remapped_rows},
};
constexpr Quantity<Facts> kFacts[] = {
    {"clock_max_hertz", "gauge", "The highest that clocks can be.", &Facts::clock_sm_max_mhz, 1e6, 1, ",clock=\"sm\""},
    {"clock_max_hertz", "gauge", "", &Facts::clock_memory_max_mhz, 1e6, 1, ",clock=\"memory\""},
    {"pcie_generation_max", "gauge", "The highest generation of device and slot.", &Facts::pcie_generation_max},
    {"pcie_lanes_max", "gauge", "Lanes of device and slot.", &Facts::pcie_width_max},
};

constexpr Quantity<Readings, bool> kFlags[] = {
    {"persistence_mode", "gauge", "1 when the driver keeps the device initialised.", &Readings::persistence_mode},
    {"ecc_enabled", "gauge", "1 when memory errors are corrected.", &Readings::ecc_enabled},
    {"mig_enabled", "gauge", "1 when the device is divided into MIG instances.", &Readings::mig_enabled},
    {"display_active", "gauge", "1 when a display is driven by it.", &Readings::display_active},
    {"memory_retirement_pending", "gauge", "1 when bad memory waits for a reset to be taken out of service.",
     &Readings::retirement_pending},
};

template <typename Part, typename Value, size_t n>
void add_quantities(const Quantity<Part, Value> (&quantities)[n], Part Device::*part, const std::vector<Unit>& units,
                    Exposition& exposition) {
  std::string_view last;
  for (const auto& quantity : quantities) {
    if (quantity.name != last) {
      exposition.family(fmt::format("yoke_device_{}", quantity.name), quantity.type, quantity.help);
    }
    last = quantity.name;
    for (const auto& unit : units) {
      if (const auto& number = unit.device.*part.*quantity.number) {
        exposition.sample(unit.labels + quantity.label,
                          static_cast<double>(*number) * quantity.factor / quantity.divisor);
      }
    }
  }
}

void add_identity(const Snapshot& snapshot, const std::vector<Unit>& units, Exposition& exposition) {
  exposition.family("yoke_backend_up", "gauge", "1 when this way of finding devices works here.");
  for (const auto& backend : snapshot.backends) {
    exposition.sample(label("backend", backend.backend), backend.is_available ? 1 : 0);
  }
  exposition.family("yoke_backend_info", "gauge", "Versions of drivers; always 1.");
  for (const auto& backend : snapshot.backends) {
    if (!backend.is_available) continue;
    exposition.sample(label("backend", backend.backend) + more_label("driver_version", backend.driver_version) +
                          more_label("api_version", backend.api_version),
                      1);
  }
  exposition.family("yoke_device_info", "gauge", "What the device is; always 1.");
  for (const auto& unit : units) {
    const auto& facts = unit.device.facts;
    exposition.sample(unit.labels + more_label("vendor", name(unit.device.vendor)) + more_label("name", facts.name) +
                          more_label("pci_bus_id", facts.pci_bus_id) + more_label("architecture", facts.architecture),
                      1);
  }
  exposition.family("yoke_device_up", "gauge", "1 when the device answered: it is neither lost, hung nor forbidden.");
  for (const auto& unit : units) exposition.sample(unit.labels, unit.is_up() ? 1 : 0);
  exposition.family("yoke_device_state", "gauge", "1 for the state that the device is in, 0 for the others.");
  for (const auto& unit : units) {
    for (const auto state : {State::kFree, State::kBusy, State::kLost, State::kNoAnswer, State::kNoPermission,
                             State::kUnknown, State::kUnusable, State::kError}) {
      exposition.sample(unit.labels + more_label("state", name(state)), unit.device.state == state ? 1 : 0);
    }
  }
}

void add_throttling(const std::vector<Unit>& units, Exposition& exposition) {
  exposition.family("yoke_device_throttled", "gauge", "1 when something other than idleness keeps the clocks down.");
  for (const auto& unit : units) {
    const auto& reasons = unit.device.readings.throttle_reasons;
    if (!reasons) continue;
    const bool is_throttled = std::any_of(reasons->begin(), reasons->end(), [](const auto& r) { return r != "idle"; });
    exposition.sample(unit.labels, is_throttled ? 1 : 0);
  }
  exposition.family("yoke_device_throttle_reason", "gauge", "1 for each reason that keeps the clocks down now.");
  for (const auto& unit : units) {
    const auto reasons = unit.device.readings.throttle_reasons.value_or(std::vector<std::string>());
    for (const auto& reason : std::set(reasons.begin(), reasons.end())) {
      exposition.sample(unit.labels + more_label("reason", reason), 1);
    }
  }
}

/// A process has one series, even if a driver lists it several times.
struct Series {
  std::string labels;
  std::optional<int64_t> memory_bytes, utilization_percent;
  std::optional<std::chrono::system_clock::time_point> started_at;
};

void add_to(std::optional<int64_t>& sum, const std::optional<int64_t>& value) {
  if (value) sum = sum.value_or(0) + *value;
}

std::string process_labels(const Unit& unit, const DeviceProcess& process) {
  auto labels = unit.labels + fmt::format(",pid=\"{}\"", process.pid) + more_label("user", process.info.user) +
                more_label("command", process.info.name, kMaxCommandBytes);
  if (const auto& job = process.origin.slurm) labels += fmt::format(",slurm_job=\"{}\"", job->job_id);
  if (const auto& container = process.origin.container) labels += more_label("container", container->id.substr(0, 12));
  return labels;
}

std::vector<Series> series_of(const std::vector<Unit>& units) {
  std::vector<Series> result;
  for (const auto& unit : units) {
    std::map<int64_t, Series> by_pid;
    for (const auto& process : unit.device.processes) {
      auto& series = by_pid[process.pid];
      if (series.labels.empty()) series.labels = process_labels(unit, process);
      add_to(series.memory_bytes, process.memory_bytes);
      add_to(series.utilization_percent, process.utilization_percent);
      series.started_at = process.info.started_at;
    }
    for (auto& [pid, series] : by_pid) result.push_back(std::move(series));
  }
  return result;
}

void add_processes(const std::vector<Unit>& units, Exposition& exposition) {
  exposition.family("yoke_device_processes", "gauge", "Processes on the device.");
  for (const auto& unit : units) {
    if (unit.is_up() && unit.device.vendor != device::Vendor::kCpu && knows_all_processes(unit.device)) {
      exposition.sample(unit.labels, static_cast<double>(unit.device.processes.size()));
    }
  }
  const auto all = series_of(units);
  const auto add = [&](std::optional<int64_t> Series::*number, double divisor, const char* name, const char* help) {
    exposition.family(name, "gauge", help);
    for (const auto& series : all) {
      if (series.*number) exposition.sample(series.labels, static_cast<double>(*(series.*number)) / divisor);
    }
  };
  add(&Series::memory_bytes, 1, "yoke_device_process_memory_bytes", "Memory of the device that the process holds.");
  add(&Series::utilization_percent, 100, "yoke_device_process_utilization_ratio",
      "Use of the device by the process, 0 to 1.");
  exposition.family("yoke_device_process_start_time_seconds", "gauge", "When the process began, in Unix time.");
  for (const auto& series : all) {
    if (!series.started_at) continue;
    const auto since_epoch = series.started_at->time_since_epoch();
    exposition.sample(series.labels, std::round(std::chrono::duration<double>(since_epoch).count()));
  }
}

/// REQUIRES: `claims` is an array of docs/claim.md's objects.
void add_claim_numbers(const nlohmann::ordered_json& claims, Exposition& exposition) {
  struct Number {
    const char *name, *key, *help;
  };
  constexpr Number kNumbers[] = {
      {"yoke_claim_info", "", "Who has claimed the device; always 1."},
      {"yoke_claim_start_time_seconds", "since", "When the claim began, in Unix time; its user says so."},
      {"yoke_claim_end_time_seconds", "until", "When the claim ends, in Unix time, if its user said that."},
      {"yoke_claim_idle_seconds", "idle_seconds", "For how long the claimed device has not been used; 0 while it is."},
      {"yoke_claim_shared_bytes", "shared_bytes", "Memory of a claim that shares the device."}};
  for (const auto& number : kNumbers) {
    exposition.family(number.name, "gauge", number.help);
    std::set<std::string> seen;  // somebody who hides his process could claim a device twice with equal labels
    for (const auto& claim : claims) {
      const auto text = [&](const char* key) { return text_member(claim, key); };
      const auto pid = claim.value("pid", nlohmann::ordered_json());
      auto labels = label("uuid", text("device_uuid")) + more_label("device", text("device")) +
                    more_label("user", text("user")) +
                    (pid.is_number() ? fmt::format(",pid=\"{}\"", pid.get<int64_t>()) : "");
      const bool is_info = *number.key == '\0';
      if (is_info)
        labels += more_label("purpose", text("purpose"), kMaxCommandBytes) + more_label("remark", text("remark"));
      const auto value = is_info ? nlohmann::ordered_json(1) : claim.value(number.key, nlohmann::ordered_json());
      if (value.is_number() && seen.insert(labels).second) exposition.sample(labels, value.get<double>());
    }
  }
}

void add_claims(const nlohmann::ordered_json& claims, Exposition& exposition) {
  if (!claims.is_object()) return;
  add_claim_numbers(claims.at("claims"), exposition);
  const auto& queue = claims.at("queue");
  exposition.family("yoke_claim_queue_requests", "gauge", "Requests that wait for devices.");
  exposition.sample("", static_cast<double>(queue.size()));
  exposition.family("yoke_claim_queue_devices", "gauge", "Devices that those who wait want, together.");
  double num_wanted = 0, oldest = 0;
  for (const auto& request : queue) {
    num_wanted += request.at("num_devices").get<double>();
    const auto since = request.at("since").get<double>();
    oldest = oldest == 0 ? since : std::min(oldest, since);
  }
  exposition.sample("", num_wanted);
  exposition.family("yoke_claim_queue_oldest_start_time_seconds", "gauge",
                    "Since when the request waits that has waited for longest, in Unix time.");
  if (!queue.empty()) exposition.sample("", oldest);
}

}  // namespace

std::string label_value(std::string_view text, size_t max_bytes) {
  auto value = printable(text);
  if (value.size() > max_bytes) {
    size_t end = max_bytes;
    while (end > 0 && (static_cast<unsigned char>(value[end]) & 0xC0) == 0x80)
      --end;  // does not split a UTF-8 character
    value.resize(end);
  }
  std::string escaped;
  for (const char c : value) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string to_prometheus(const Snapshot& snapshot, const nlohmann::ordered_json& claims) {
  Exposition exposition;
  const auto units = units_of(snapshot);
  add_identity(snapshot, units, exposition);
  add_quantities(kReadings, &Device::readings, units, exposition);
  add_quantities(kFacts, &Device::facts, units, exposition);
  add_quantities(kFlags, &Device::readings, units, exposition);
  add_throttling(units, exposition);
  add_processes(units, exposition);
  add_claims(claims, exposition);
  return exposition.take();
}

}  // namespace yoke::web
