#include "yoke/claim/policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "yoke/base/format.h"
#include "yoke/base/text.h"
#include "yoke/device/topology/connections.h"
#include "yoke/device/visibility/visibility.h"

namespace yoke::claim {
namespace {

using device::Device;

constexpr int64_t kSuspectBytes = int64_t{1} << 30;  // the limit of device::state_by_use

std::string owner_of(const device::DeviceProcess& process) {
  if (process.info.user.empty()) return fmt::format("process {}, which cannot be seen from here", process.pid);
  return fmt::format("{} (pid {})", printable(process.info.user), process.pid);
}

/// Judges by processes and memory. `accounted` are the bytes of processes that do not keep others away (graphics).
void judge_use(const Device& device, Candidate& candidate) {
  int64_t accounted = 0;
  for (const auto& process : device.processes) {
    if (process.type == "graphics") {
      accounted += process.memory_bytes.value_or(0);
      continue;
    }
    return candidate.mark(Standing::kInUse, "in use without a claim by " + owner_of(process));
  }
  const auto held = device::unaccounted_bytes(device.readings, accounted);
  if (held <= kSuspectBytes) return;
  candidate.mark(Standing::kSuspect,
                 fmt::format("{} of memory are held by no process that can be seen", format_bytes(held)));
}

/// Who uses how much memory. What the driver counts for no process has no known user.
void add_memory(const Device& device, Candidate& candidate) {
  // What the driver reserves for itself is neither free nor used.
  const auto& readings = device.readings;
  candidate.memory_bytes = readings.memory_total_bytes;
  if (readings.memory_free_bytes && readings.memory_used_bytes) {
    candidate.memory_bytes = *readings.memory_free_bytes + *readings.memory_used_bytes;
  }
  int64_t of_processes = 0;
  for (const auto& process : device.processes) {
    const auto bytes = process.memory_bytes.value_or(0);
    of_processes += bytes;
    candidate.used_by_uid[process.info.uid.value_or(kUnknownUser)] += bytes;
    if (process.type == "graphics") continue;
    if (candidate.used_by.empty()) candidate.used_by = "in use without a claim by " + owner_of(process);
    candidate.is_used = true;
  }
  const auto rest = device.readings.memory_used_bytes.value_or(0) - of_processes;
  const auto user = readings.unified_memory.value_or(false) ? kRestOfMachine : kUnknownUser;
  if (rest > 0) candidate.used_by_uid[user] += rest;
  candidate.is_used = candidate.is_used || device::unaccounted_bytes(readings, of_processes) > kSuspectBytes;
}

/// Memory errors that do not keep programs from the device. With an error since the driver was loaded or a remapping
/// that waits for a reset, new programs may start (NVIDIA, GPU Memory Error Management: Error Recovery and Response
/// Flags), but other devices are better.
std::string damage_of(const device::Readings& readings) {
  if (const auto count = readings.ecc_uncorrected_volatile.value_or(0); count > 0) {
    return fmt::format("it has had {} memory {} that could not be corrected since its driver was loaded", count,
                       count == 1 ? "error" : "errors");
  }
  return readings.retirement_pending == true ? "bad memory of it is taken out of service at the next reset" : "";
}

Candidate judge(const Device& device, std::string id, const Wish& wish) {
  Candidate candidate{.id = std::move(id), .temperature_celsius = device.readings.temperature_celsius};
  const auto refuse = [&](Standing standing, std::string reason) {
    candidate.mark(standing, std::move(reason));
    return candidate;
  };
  if (device.state != device::State::kFree && device.state != device::State::kBusy) {
    const auto why = device.reason.empty() ? "" : ": " + printable(device.reason);
    return refuse(Standing::kUnusable, std::string(name(device.state)) + why);
  }
  const auto& readings = device.readings;
  // DCGM's health check fails then, and says to isolate the GPU (dcgm_errors.c: DCGM_FR_ROW_REMAP_FAILURE).
  if (readings.remapping_failed == true) {
    return refuse(
        Standing::kUnusable,
        "defective: bad memory could not be replaced by spare rows, so programs fail or compute wrongly; have "
        "the GPU replaced");
  }
  candidate.damage = damage_of(readings);
  if (wish.memory_bytes && readings.memory_total_bytes && *readings.memory_total_bytes < *wish.memory_bytes) {
    return refuse(Standing::kTooSmall,
                  fmt::format("has only {} of memory", format_bytes(*readings.memory_total_bytes)));
  }
  add_memory(device, candidate);
  constexpr int64_t kMuchUse = 95;
  candidate.seems_busy = !candidate.is_used && readings.utilization_percent.value_or(0) >= kMuchUse;
  if (wish.is_share) return candidate;  // what others use is regarded by mark_full()
  judge_use(device, candidate);
  if (candidate.standing != Standing::kFree || !wish.memory_bytes) return candidate;
  auto free = readings.memory_free_bytes;
  if (!free && readings.memory_total_bytes)
    free = *readings.memory_total_bytes - readings.memory_used_bytes.value_or(0);
  if (!free) return refuse(Standing::kTooSmall, "its memory is not known");
  if (*free >= *wish.memory_bytes) return candidate;
  return refuse(Standing::kTooSmall, fmt::format("only {} of memory are free", format_bytes(*free)));
}

/// AMD's UUIDs are not unique (partitions of an MI300), so its devices are named by their place on the bus.
std::string key_of(const Device& device, std::map<std::string, int64_t>& num_at) {
  if (device.vendor == device::Vendor::kNvidia) return device.facts.uuid;
  if (device.facts.pci_bus_id.empty()) return "";
  // A command may have read some partitions of a card alone, so they are not counted.
  const auto& minor = device.facts.minor_number;
  if (minor) return fmt::format("amd-{}-{}", device.facts.pci_bus_id, *minor);
  const auto number = num_at[device.facts.pci_bus_id]++;
  return fmt::format("amd-{}{}", device.facts.pci_bus_id, number == 0 ? "" : fmt::format("-{}", number));
}

int64_t closeness(const device::Connection& connection) {
  using Kind = device::Connection::Kind;
  switch (connection.kind) {
    case Kind::kSelf: return 0;
    case Kind::kNvlink:
    case Kind::kXgmi: return 1000 + connection.count;
    case Kind::kHops: return 800 - std::min<int64_t>(connection.count, 100);
    case Kind::kPix: return 500;
    case Kind::kPxb: return 400;
    case Kind::kPhb: return 300;
    case Kind::kNode: return 200;
    case Kind::kSys: return 100;
    case Kind::kUnknown: return 50;
  }
  return 0;
}

/// The key by which sets of devices are compared; the smallest one is chosen.
using Preference = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, std::vector<size_t>>;

class Chooser {
 public:
  Chooser(const std::vector<Candidate>& candidates, const Closeness& closeness, std::vector<size_t> free, size_t wanted)
      : candidates_(candidates), closeness_(closeness), free_(std::move(free)), wanted_(wanted) {}

  std::vector<size_t> best() {
    if (num_sets() <= kMostSets) {
      std::vector<size_t> chosen;
      try_all(0, chosen);
    } else {
      for (const auto seed : free_) try_growing_from(seed);
    }
    return std::get<5>(*best_);
  }

 private:
  static constexpr double kMostSets = 20'000;  // 16 over 8 is 12,870

  double num_sets() const {
    double count = 1;
    for (size_t i = 0; i < wanted_; ++i) {
      count = count * static_cast<double>(free_.size() - i) / static_cast<double>(i + 1);
    }
    return count;
  }

  Preference preference_of(const std::vector<size_t>& chosen) const {
    int64_t num_last = 0, weakest = INT64_MAX, sum = 0, cut = 0, heat = 0;
    for (const auto a : chosen) {
      num_last += is_last(candidates_[a]) ? 1 : 0;
      heat += candidates_[a].temperature_celsius.value_or(40);
      for (const auto b : free_) {
        if (a == b) continue;
        const bool is_inside = std::ranges::binary_search(chosen, b);
        (is_inside ? sum : cut) += closeness_[a][b];
        if (is_inside) weakest = std::min(weakest, closeness_[a][b]);
      }
    }
    return {num_last, -weakest, -sum, cut, heat, chosen};
  }

  void offer(const std::vector<size_t>& chosen) {
    auto preference = preference_of(chosen);
    if (!best_ || preference < *best_) best_ = std::move(preference);
  }

  void try_all(size_t first, std::vector<size_t>& chosen) {
    if (chosen.size() == wanted_) return offer(chosen);
    for (size_t i = first; i + (wanted_ - chosen.size()) <= free_.size(); ++i) {
      chosen.push_back(free_[i]);
      try_all(i + 1, chosen);
      chosen.pop_back();
    }
  }

  /// Adds the device that is closest to those that were chosen, until there are enough.
  void try_growing_from(size_t seed) {
    std::vector<size_t> chosen = {seed};
    while (chosen.size() < wanted_) {
      std::optional<size_t> next;
      std::tuple<int64_t, int64_t> best_of_next;
      for (const auto other : free_) {
        if (std::ranges::binary_search(chosen, other)) continue;
        int64_t weakest = INT64_MAX, sum = 0;
        for (const auto one : chosen) {
          weakest = std::min(weakest, closeness_[one][other]);
          sum += closeness_[one][other];
        }
        const std::tuple<int64_t, int64_t> value{weakest, sum};
        if (next && value <= best_of_next) continue;
        next = other;
        best_of_next = value;
      }
      chosen.insert(std::ranges::upper_bound(chosen, *next), *next);
    }
    offer(chosen);
  }

  const std::vector<Candidate>& candidates_;
  const Closeness& closeness_;
  std::vector<size_t> free_;
  size_t wanted_;
  std::optional<Preference> best_;
};

std::string connection_word(int64_t value) {
  if (value >= 1000) return "by NVLink or Infinity Fabric";
  if (value >= 700) return "by Infinity Fabric through other devices";
  if (value >= 500) return "through one PCIe switch";
  if (value >= 400) return "through PCIe switches";
  if (value >= 300) return "through one host bridge";
  if (value >= 200) return "within a NUMA node";
  if (value >= 100) return "between NUMA nodes";
  return "in a way that is not known";
}

}  // namespace

std::vector<Candidate> candidates_of(const device::Snapshot& snapshot, const Wish& wish) {
  std::vector<Candidate> candidates;
  const bool sees_several = device::shows_several_mig_devices(snapshot);
  std::map<std::string, int64_t> num_at;
  for (const auto& device : snapshot.devices) {
    if (device.vendor == device::Vendor::kCpu) continue;
    const bool is_mig = device.readings.mig_enabled.value_or(false) || !device.instances.empty();
    if (!is_mig) {
      candidates.push_back(judge(device, id_of(device), wish));
      candidates.back().key = key_of(device, num_at);
    }
    for (auto instance : device.instances) {
      // A driver tells the state of the memory with the GPU alone.
      if (!instance.readings.remapping_failed) instance.readings.remapping_failed = device.readings.remapping_failed;
      if (damage_of(instance.readings).empty()) {
        instance.readings.ecc_uncorrected_volatile = device.readings.ecc_uncorrected_volatile;
        instance.readings.retirement_pending = device.readings.retirement_pending;
      }
      candidates.push_back(judge(instance, fmt::format("{}:{}", device.index, instance.index), wish));
      auto& candidate = candidates.back();
      candidate.key = instance.facts.uuid;
      candidate.gpu_instance =
          fmt::format("{}/{}", device.index, instance.facts.gpu_instance.value_or(-1 - instance.index));
      if (wish.num_devices < 2 || sees_several || candidate.standing == Standing::kUnusable) continue;
      candidate.mark(Standing::kExcluded,
                     "it is a MIG instance, beside which a program sees no other device before driver 570");
    }
  }
  std::map<std::string, int64_t> num_with;
  for (const auto& candidate : candidates) ++num_with[candidate.key];
  for (auto& candidate : candidates) {
    if (candidate.standing == Standing::kUnusable) continue;
    if (candidate.key.empty()) {
      candidate.mark(Standing::kUnusable, "without a lock, because its driver does not tell its UUID");
    } else if (num_with[candidate.key] > 1) {
      candidate.mark(Standing::kUnusable,
                     "another device has the same UUID, so neither a lock nor CUDA_VISIBLE_DEVICES tells them apart");
    }
  }
  return candidates;
}

Closeness closeness_of(const device::Snapshot& snapshot, const std::vector<Candidate>& candidates,
                       const std::vector<BusPath>& paths) {
  device::Topology topology;
  std::vector<Device> devices;  // of each candidate; an instance is where its GPU is
  for (const auto& device : snapshot.devices) {
    const auto belongs = [&](const Candidate& candidate) {
      return candidate.id == id_of(device) || candidate.id.starts_with(id_of(device) + ":");
    };
    const auto count = std::ranges::count_if(candidates, belongs);
    for (int64_t i = 0; i < count; ++i) devices.push_back(device);
    for (const auto& path : paths) {
      if (count == 0 || path.pci_bus_id != device.facts.pci_bus_id) continue;
      topology.devices.push_back({.pci_bus_id = path.pci_bus_id,
                                  .numa_node = device.facts.numa_node,
                                  .cpus = device.facts.cpu_affinity,
                                  .bridges = path.bridges});
    }
  }
  const auto matrix = link_matrix(topology, devices);
  Closeness result(candidates.size(), std::vector<int64_t>(candidates.size(), 0));
  for (size_t a = 0; a < candidates.size() && a < matrix.connections.size(); ++a) {
    for (size_t b = 0; b < candidates.size(); ++b) {
      if (a != b) result[a][b] = closeness(matrix.connections[a][b]);
    }
  }
  return result;
}

bool is_last(const Candidate& candidate) { return candidate.seems_busy || !candidate.damage.empty(); }

std::vector<size_t> free_among(const std::vector<Candidate>& candidates, std::vector<std::string>& sentences) {
  std::vector<size_t> free;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const auto& candidate = candidates[i];
    if (candidate.standing == Standing::kFree) {
      free.push_back(i);
    } else {
      sentences.push_back(fmt::format("device {} is not given: {}", candidate.id, candidate.reason));
    }
  }
  return free;
}

std::vector<size_t> preferred(const std::vector<Candidate>& candidates, std::vector<size_t> free, size_t wanted) {
  if (wanted > 1) {
    std::set<std::string> seen;
    std::erase_if(free, [&](size_t i) {
      const auto& one = candidates[i].gpu_instance;
      return !one.empty() && !seen.insert(one).second;
    });
  }
  if (wanted > 1) {
    std::vector<size_t> whole, instances;
    for (const auto i : free) (candidates[i].gpu_instance.empty() ? whole : instances).push_back(i);
    free = whole.size() >= std::min(wanted, instances.size()) ? whole : instances;
  }
  auto idle = free;
  std::erase_if(idle, [&](size_t i) { return is_last(candidates[i]); });
  return idle.size() >= wanted ? idle : free;
}

Pick pick(const std::vector<Candidate>& candidates, const Closeness& closeness, const Wish& wish) {
  Pick result;
  const auto all_free = free_among(candidates, result.sentences);
  const auto wanted = static_cast<size_t>(wish.num_devices);
  const auto free = preferred(candidates, all_free, wanted);
  for (const auto i : all_free) {
    if (std::ranges::find(free, i) != free.end()) continue;
    const auto& one = candidates[i];
    result.sentences.push_back(
        fmt::format("device {} is given last: {}", one.id,
                    !one.damage.empty()        ? one.damage
                    : one.seems_busy           ? "it seems to compute, although no process of its list does"
                    : one.gpu_instance.empty() ? "a program sees whole GPUs or MIG instances, not both"
                                               : "it is a MIG instance, and several devices are wanted"));
  }
  if (wanted == 0 || free.size() < wanted) {
    result.sentences.push_back(fmt::format("{} of {} devices can be given, and {} {} wanted", free.size(),
                                           candidates.size(), wanted, wanted == 1 ? "is" : "are"));
    return result;
  }
  result.chosen = Chooser(candidates, closeness, free, wanted).best();
  std::vector<std::string> ids;
  int64_t weakest = INT64_MAX;
  for (const auto a : result.chosen) {
    ids.push_back(candidates[a].id);
    for (const auto b : result.chosen) weakest = a == b ? weakest : std::min(weakest, closeness[a][b]);
  }
  const auto list = fmt::format("{}", fmt::join(ids, ", "));
  if (all_free.size() == wanted) {
    result.sentences.push_back(fmt::format("{} {} all that can be given", list, wanted == 1 ? "is" : "are"));
  } else if (wanted == 1) {
    result.sentences.push_back(list +
                               " is given: it leaves the best connected devices to others, and is the coolest of "
                               "those");
  } else {
    result.sentences.push_back(list + " are given: no other " + std::to_string(wanted) +
                               " are connected better, and these are the coolest of those");
  }
  if (wanted > 1) result.sentences.push_back("their weakest connection is " + connection_word(weakest));
  return result;
}

}  // namespace yoke::claim
