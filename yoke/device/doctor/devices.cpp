// Checks what each GPU reports about itself, and what the kernel reports about it.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "yoke/base/format.h"
#include "yoke/device/doctor/detail/checks.h"

namespace yoke::device {
namespace {

/// Merges the same result on several devices into one finding.
class Grouped {
 public:
  void add(const std::string& device, const std::string& found) { groups_[found].push_back(device); }

  /// Reports the merged results. If there are none, reports `healthy` unless it is empty.
  void report(const char* id, Status status, const char* advice, Findings& findings,
              const std::string& healthy = "") const {
    for (const auto& [found, devices] : groups_) findings.push_back({id, status, devices, found, advice});
    if (groups_.empty() && !healthy.empty()) add_finding(findings, id, Status::kOk, healthy);
  }

 private:
  std::map<std::string, std::vector<std::string>> groups_;
};

void check_states(const std::vector<NamedDevice>& gpus, Findings& findings) {
  Grouped failed, forbidden, silent, unknown, prohibited;
  for (const auto& [id, device, is_instance] : gpus) {
    const auto text = fmt::format("{}{}{}", name(device->state), device->reason.empty() ? "" : ": ", device->reason);
    if (device->state == State::kNoPermission) forbidden.add(id, text);
    if (device->state == State::kLost || device->state == State::kError) failed.add(id, text);
    if (device->state == State::kNoAnswer) silent.add(id, text);
    if (device->state == State::kUnknown) unknown.add(id, text);
    if (device->state == State::kUnusable && device->readings.compute_mode == "prohibited") {
      prohibited.add(id, device->reason);
    }
  }
  failed.report(
      "state", Status::kFail,
      "see `dmesg`; `sudo nvidia-smi --gpu-reset -i ID` (no program may use it) or a reboot may bring it back",
      findings);
  silent.report(
      "state", Status::kFail,
      "a GPU without persistence mode needs some seconds to wake: `yoke doctor --deadline 15`; if it does not "
      "answer then either, see `dmesg`",
      findings);
  unknown.report("process-list", Status::kWarn,
                 "nobody is given it, since it may be in use; `nvidia-smi` as root shows whether the driver knows",
                 findings);
  prohibited.report("compute-mode", Status::kFail, "`sudo nvidia-smi -i ID -c DEFAULT` lets programs compute on it",
                    findings);
  forbidden.report("state", Status::kFail, "ask the administrator; a Slurm job sees only its own GPUs", findings);
}

void check_persistence(const std::vector<NamedDevice>& gpus, Findings& findings) {
  Grouped off;
  bool is_known = false;
  for (const auto& [id, device, is_instance] : gpus) {
    const auto& mode = device->readings.persistence_mode;
    is_known = is_known || mode.has_value();
    if (mode == false && !is_instance)
      off.add(id, "persistence mode is off: the first program to use the GPU waits for a second or two");
  }
  off.report("persistence-mode", Status::kWarn, "start nvidia-persistenced, or `sudo nvidia-smi -pm 1` after each boot",
             findings, is_known ? "on" : "");
}

void check_ghosts(const std::vector<NamedDevice>& gpus, Findings& findings) {
  constexpr int64_t kMuch = 95;
  Grouped ghosts;
  for (const auto& [id, device, is_instance] : gpus) {
    const auto percent = device->readings.utilization_percent.value_or(0);
    if (device->state != State::kFree || percent < kMuch || !device->has_process_list) continue;
    ghosts.add(id, fmt::format("{} % in use, although no process computes on it", percent));
  }
  ghosts.report(
      "use-without-process", Status::kWarn,
      "most often a driver without persistence mode miscounts: `sudo nvidia-smi -pm 1`; if it stays, a process "
      "of another container or namespace uses it",
      findings);
}

void check_memory_held(const std::vector<NamedDevice>& gpus, Findings& findings) {
  constexpr int64_t kMuch = int64_t{1} << 30;
  Grouped held;
  for (const auto& [id, device, is_instance] : gpus) {
    if (!device->instances.empty() || !device->readings.memory_used_bytes || !knows_all_processes(*device)) continue;
    int64_t accounted = 0;
    bool is_complete = true;
    for (const auto& process : device->processes) {
      accounted += process.memory_bytes.value_or(0);
      is_complete = is_complete && process.memory_bytes.has_value();
    }
    const auto rest = unaccounted_bytes(device->readings, accounted);
    if (is_complete && rest > kMuch) held.add(id, format_bytes(rest) + " in use that no visible process accounts for");
  }
  held.report("memory-held", Status::kWarn,
              "a process of another container or user namespace, or one that hangs while ending: `sudo fuser -v "
              "/dev/nvidia* /dev/kfd` shows it",
              findings);
}

void check_throttling(const std::vector<NamedDevice>& gpus, Findings& findings) {
  Grouped hot, capped;
  bool is_known = false;
  for (const auto& [id, device, is_instance] : gpus) {
    const auto& readings = device->readings;
    if (!readings.throttle_reasons) continue;
    is_known = true;
    for (const auto& reason : *readings.throttle_reasons) {
      if (reason.find("slowdown") != reason.npos || reason == "power brake") {
        const auto temperature =
            readings.temperature_celsius ? fmt::format(" at {} °C", *readings.temperature_celsius) : "";
        hot.add(id, fmt::format("clocks are held down: {}{}", reason,
                                reason.find("thermal") != reason.npos ? temperature : ""));
      }
    }
    // A GPU runs at full speed with its default power limit. An administrator or a program must have set a lower limit.
    const auto& usual = device->facts.power_limit_default_mw;
    if (readings.power_limit_mw && usual && *readings.power_limit_mw < *usual) {
      capped.add(id, fmt::format("the power limit is {} W of {} W", *readings.power_limit_mw / 1000, *usual / 1000));
    }
  }
  hot.report("clocks", Status::kWarn, "check cooling, fans, dust and power supply", findings,
             is_known ? "nothing but power and idleness holds them down" : "");
  capped.report("power-limit", Status::kWarn, "if this is not intended: `sudo nvidia-smi -i ID -pl WATTS`", findings);
}

void check_memory_errors(const std::vector<NamedDevice>& gpus, Findings& findings) {
  Grouped now, before, pending, failed, switched;
  bool is_known = false;
  for (const auto& [id, device, is_instance] : gpus) {
    const auto& readings = device->readings;
    is_known = is_known || readings.ecc_uncorrected_volatile.has_value();
    const auto recent = readings.ecc_uncorrected_volatile.value_or(0),
               ever = readings.ecc_uncorrected_aggregate.value_or(0);
    if (recent > 0) {
      now.add(id, fmt::format("{} memory errors that could not be corrected since the driver was loaded", recent));
    } else if (ever > 0) {
      before.add(id, fmt::format("{} memory errors that could not be corrected in its life", ever));
    }
    if (readings.retirement_pending == true) pending.add(id, "bad memory is taken out of service at the next reset");
    if (readings.remapping_failed == true) failed.add(id, "bad memory could not be replaced by spare rows");
    if (readings.ecc_after_reset) {
      switched.add(id, fmt::format("ECC is {} now, and {} after the next reset",
                                   *readings.ecc_after_reset ? "off" : "on", *readings.ecc_after_reset ? "on" : "off"));
    }
  }
  failed.report("row-remapping", Status::kFail, "have the GPU replaced: its memory has no spare rows left", findings);
  switched.report(
      "ecc-mode", Status::kWarn,
      "`sudo nvidia-smi --gpu-reset -i ID` when no program uses it, or reboot; until then results and memory "
      "sizes are those of the old mode",
      findings);
  now.report("ecc", Status::kFail,
             "results since then may be wrong: reset the GPU; if it comes again, have it replaced", findings,
             is_known ? "no uncorrected memory errors since the driver was loaded" : "");
  before.report("ecc-history", Status::kWarn, "have it replaced if the number grows", findings);
  pending.report("retired-memory", Status::kWarn,
                 "`sudo nvidia-smi --gpu-reset -i ID` when no program uses it, or reboot", findings);
}

void check_pcie(const std::vector<NamedDevice>& gpus, Findings& findings) {
  Grouped narrow, slow;
  bool is_known = false;
  for (const auto& [id, device, is_instance] : gpus) {
    const auto& readings = device->readings;
    const auto& facts = device->facts;
    if (is_instance || !readings.pcie_width || !facts.pcie_width_max) continue;
    is_known = true;
    if (*readings.pcie_width < *facts.pcie_width_max) {
      narrow.add(id, fmt::format("its PCIe link has {} of {} lanes", *readings.pcie_width, *facts.pcie_width_max));
    }
    // An idle GPU lowers its link speed to save power, so only busy GPUs are checked.
    const bool is_at_work = readings.utilization_percent.value_or(0) >= 10;
    if (is_at_work && readings.pcie_generation && facts.pcie_generation_max &&
        *readings.pcie_generation < *facts.pcie_generation_max) {
      slow.add(id, fmt::format("its PCIe link runs as generation {} of {} under load", *readings.pcie_generation,
                               *facts.pcie_generation_max));
    }
  }
  narrow.report("pcie", Status::kWarn,
                "reseat the card, and check the riser and the slot; some boards share lanes between slots", findings,
                is_known ? "the PCIe links have all their lanes" : "");
  slow.report("pcie-speed", Status::kWarn, "check the BIOS setting for the slot, and the riser", findings);
}

void check_mig(const std::vector<NamedDevice>& gpus, Findings& findings) {
  Grouped empty, switched;
  for (const auto& [id, device, is_instance] : gpus) {
    if (device->readings.mig_enabled == true && device->instances.empty()) {
      empty.add(id, "MIG mode is on, but it has no instance: programs cannot use it");
    }
    if (const auto& after = device->readings.mig_after_reset) {
      switched.add(id, fmt::format("MIG mode is {} now, and {} after the next reset", *after ? "off" : "on",
                                   *after ? "on" : "off"));
    }
  }
  switched.report("mig-mode", Status::kWarn, "`sudo nvidia-smi --gpu-reset -i ID` when no program uses it, or reboot",
                  findings);
  empty.report("mig", Status::kFail, "create instances (`sudo nvidia-smi mig -cgi 0 -C`), or switch MIG off (`-mig 0`)",
               findings);
}

void check_links(const std::vector<NamedDevice>& gpus, Findings& findings) {
  Grouped down;
  for (const auto& [id, device, is_instance] : gpus) {
    if (is_instance || !device->links) continue;
    const auto& links = *device->links;
    const auto num_up = std::ranges::count_if(links, [](const Link& link) { return link.is_active; });
    if (num_up == 0 || num_up == std::ssize(links)) continue;  // without a bridge all are inactive
    down.add(id, fmt::format("{} of {} NVLinks are down", std::ssize(links) - num_up, links.size()));
  }
  down.report("nvlink", Status::kWarn,
              "traffic takes the others, or PCIe: `nvidia-smi nvlink -s` and `dmesg` say which; a bridge may be loose, "
              "and some boards have fewer than the GPU",
              findings);
}

}  // namespace

void check_devices(const Observations& observations, Findings& findings) {
  const auto gpus = gpus_of(observations.snapshot);
  check_states(gpus, findings);
  check_persistence(gpus, findings);
  check_mig(gpus, findings);
  check_links(gpus, findings);
  check_ghosts(gpus, findings);
  check_memory_held(gpus, findings);
  check_throttling(gpus, findings);
  check_memory_errors(gpus, findings);
  check_pcie(gpus, findings);
}

void check_kernel_log(const Observations& observations, Findings& findings) {
  if (!has_vendor(observations, Vendor::kNvidia) && !has_vendor(observations, Vendor::kAmd)) return;
  if (!observations.kernel_log || !observations.kernel_log->reason.empty()) {
    add_finding(findings, "kernel-log", Status::kSkip,
                fmt::format("the kernel's messages cannot be read: {}",
                            observations.kernel_log ? observations.kernel_log->reason : "no answer in time"),
                "`sudo dmesg | grep -E 'NVRM: Xid|amdgpu.*reset'` shows errors of GPUs");
    return;
  }
  struct Repeated {
    KernelEvent last;
    int64_t count = 0;
  };
  std::map<std::pair<std::string, int64_t>, Repeated> kinds;  // the key is the device and the Xid, or 0 for amdgpu
  for (const auto& event : observations.kernel_log->events) {
    auto& kind = kinds[{event.pci_bus_id, event.xid.value_or(0)}];
    kind.last = event;
    ++kind.count;
  }
  for (const auto& [key, kind] : kinds) {
    const auto ago = format_duration(observations.kernel_log->uptime - kind.last.since_boot);
    const auto times = kind.count == 1 ? std::string() : fmt::format("{} times, last ", kind.count);
    Finding finding{.id = "kernel-log", .status = Status::kWarn};
    for (const auto& gpu : gpus_of(observations.snapshot)) {
      if (!gpu.is_instance && gpu.device->facts.pci_bus_id == kind.last.pci_bus_id) finding.devices.push_back(gpu.id);
    }
    if (const auto xid = kind.last.xid) {
      const auto meaning = meaning_of_xid(*xid);
      if (meaning.is_hardware) finding.status = Status::kFail;
      finding.found =
          fmt::format("{}: Xid {} ({}), {}{} ago: {}", key.first, *xid, meaning.text, times, ago, kind.last.text);
      finding.advice = meaning.is_hardware
                           ? "reset the GPU or reboot; if it comes again, have it replaced"
                           : "most often a program causes it; if it happens with every program, suspect the GPU";
    } else {
      finding.found = fmt::format("{}: {}{} ago: {}", key.first, times, ago, kind.last.text);
      finding.advice = "programs on it have lost their work; if it happens again, check cooling and driver";
    }
    findings.push_back(std::move(finding));
  }
  if (kinds.empty()) add_finding(findings, "kernel-log", Status::kOk, "no GPU errors in the kernel's messages");
}

}  // namespace yoke::device
