// Checks the limits that the machine sets for this process.
#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/format.h"
#include "yoke/device/doctor/detail/checks.h"

namespace yoke::device {
namespace {

constexpr int64_t kGibibyte = int64_t{1} << 30;

/// Adds `found`, as a warning with `advice` if it is too little.
void add_judged(Findings& findings, const char* id, const std::string& found, bool is_too_little, std::string advice) {
  if (!is_too_little) return add_finding(findings, id, Status::kOk, found);
  add_finding(findings, id, Status::kWarn, found, std::move(advice));
}

void check_cpu(const Observations& observations, Findings& findings) {
  const auto& devices = observations.snapshot.devices;
  const auto cpu = std::ranges::find_if(devices, [](const auto& d) { return d.vendor == Vendor::kCpu; });
  const auto& quota = observations.system->cgroup.cpus;
  std::string found;
  if (cpu != devices.end() && cpu->facts.num_cpus && cpu->facts.num_allowed_cpus) {
    found = fmt::format("{} of {} processors may be used", *cpu->facts.num_allowed_cpus, *cpu->facts.num_cpus);
  }
  if (quota) found += fmt::format("{}a cgroup allows the time of {:.1f}", found.empty() ? "" : "; ", *quota);
  if (found.empty()) return;
  // Programs count CPUs, and a quota does not change that count. So they start too many threads, which then wait.
  const bool is_trap =
      quota && cpu != devices.end() && cpu->facts.num_cpus && *quota < 0.9 * static_cast<double>(*cpu->facts.num_cpus);
  add_judged(findings, "cpu", found, is_trap,
             fmt::format("programs that count processors start too many threads: set OMP_NUM_THREADS={:.0f}",
                         std::max(1.0, quota.value_or(1))));
}

void check_cgroup(const CgroupLimits& cgroup, Findings& findings) {
  if (cgroup.num_out_of_memory_kills > 0) {
    add_finding(
        findings, "memory", Status::kWarn,
        fmt::format("{} processes of this cgroup were killed because memory ran out{}", cgroup.num_out_of_memory_kills,
                    cgroup.memory_bytes ? "; its limit is " + format_bytes(*cgroup.memory_bytes) : ""),
        "ask for more memory (Slurm: --mem; docker: --memory), or use less: fewer loader workers");
  } else if (cgroup.memory_bytes) {
    add_finding(findings, "memory", Status::kOk, "a cgroup allows " + format_bytes(*cgroup.memory_bytes));
  }
  if (!cgroup.max_processes) return;
  const auto left = *cgroup.max_processes - cgroup.num_processes.value_or(0);
  if (left < 512) {
    add_finding(findings, "processes", Status::kWarn,
                fmt::format("a cgroup allows {} processes and threads, of which {} are left", *cgroup.max_processes,
                            std::max<int64_t>(0, left)),
                "raise it (docker: --pids-limit; systemd: TasksMax=): a training with loader workers takes hundreds");
  } else {
    add_finding(findings, "processes", Status::kOk, fmt::format("a cgroup allows {}", *cgroup.max_processes));
  }
}

void check_process_limits(const System& system, Findings& findings) {
  if (system.shared_memory_bytes) {
    const auto found = fmt::format("/dev/shm has {}, {} free", format_bytes(*system.shared_memory_bytes),
                                   format_bytes(system.shared_memory_free_bytes.value_or(0)));
    const bool is_small =
        *system.shared_memory_bytes < kGibibyte || system.shared_memory_free_bytes.value_or(kGibibyte) < kGibibyte / 4;
    add_judged(findings, "shared-memory", found, is_small,
               "loader workers and NCCL need more: docker run --ipc=host or --shm-size=8g; or remove what is left in "
               "/dev/shm");
  }
  if (system.max_open_files && system.hard_max_open_files) {
    const auto soft = *system.max_open_files, hard = *system.hard_max_open_files;
    const auto found = fmt::format("a program may open {} files", soft < 0 ? "any number of" : fmt::format("{}", soft));
    add_judged(findings, "open-files", found, soft >= 0 && soft < 1024,
               hard < 0 || hard > soft ? "`ulimit -n 4096`" : "raise it in /etc/security/limits.conf");
  }
  if (system.has_infiniband && system.max_locked_bytes && *system.max_locked_bytes >= 0) {
    add_finding(findings, "locked-memory", Status::kWarn,
                fmt::format("a program may lock {} of memory, and InfiniBand locks what it sends",
                            format_bytes(*system.max_locked_bytes)),
                "set memlock to unlimited in /etc/security/limits.conf (docker: --ulimit memlock=-1)");
  }
}

void check_iommu(const System& system, Findings& findings) {
  std::vector<std::string> translated;
  for (const auto& gpu : system.pci_gpus) {
    const bool is_ours = gpu.kernel_driver == "nvidia" || gpu.kernel_driver == "amdgpu";
    if (is_ours && gpu.iommu_type.starts_with("DMA")) translated.push_back(gpu.pci_bus_id);
  }
  if (translated.size() < 2) return;
  add_finding(findings, "iommu", Status::kWarn,
              fmt::format("an IOMMU translates what {} GPUs send over PCIe", translated.size()),
              "transfers between GPUs may be slow or hang: boot with iommu=pt");
}

}  // namespace

void check_limits(const Observations& observations, Findings& findings) {
  if (!observations.system) return;
  check_cpu(observations, findings);
  check_cgroup(observations.system->cgroup, findings);
  check_process_limits(*observations.system, findings);
  check_iommu(*observations.system, findings);
}

}  // namespace yoke::device
