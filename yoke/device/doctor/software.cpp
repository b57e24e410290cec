// Checks which devices programs can reach through drivers, libraries and permissions.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "yoke/base/environment.h"
#include "yoke/base/format.h"
#include "yoke/contract/amd_driver.h"
#include "yoke/device/doctor/detail/checks.h"
#include "yoke/device/uses.h"
#include "yoke/device/visibility/visibility.h"

namespace yoke::device {
namespace {

constexpr auto kInstallDriver = "install the NVIDIA driver of your distribution, or ask the administrator";

/// Returns the major version, 13 for "13.0", or nullopt if `version` is not a version.
std::optional<int64_t> major_of(std::string_view version) { return parse_int(version.substr(0, version.find('.'))); }

/// Whether two versions are known and differ. An empty string is an unknown version.
bool differ(std::string_view a, std::string_view b) { return !a.empty() && !b.empty() && a != b; }

int64_t count_visible(const Observations& observations, Vendor vendor) {
  const auto all = visibility(observations.environment, observations.snapshot).devices;
  return std::ranges::count_if(all, [&](const auto& d) { return d.vendor == vendor && d.ordinal.has_value(); });
}

bool is_accelerator_driver(std::string_view driver) { return driver == "nvidia" || driver == "amdgpu"; }

}  // namespace

void check_gpus(const Observations& observations, Findings& findings) {
  std::map<std::string, int64_t> counts;
  std::set<std::string> known;
  for (const auto& gpu : gpus_of(observations.snapshot)) {
    known.insert(gpu.device->facts.pci_bus_id);
    if (gpu.is_instance) continue;
    const auto& facts = gpu.device->facts;
    const auto* nameless = gpu.device->vendor == Vendor::kNvidia ? "NVIDIA GPU" : "AMD GPU";
    ++counts[facts.name.empty() ? nameless : facts.name];
  }
  std::vector<std::string> parts;
  parts.reserve(counts.size());
  for (const auto& [model, count] : counts) parts.push_back(fmt::format("{} x {}", count, model));
  const bool has_silent_driver = find_silent_backend(observations.snapshot) != nullptr;
  const auto& vendor = observations.vendor;
  std::vector<PciGpu> on_bus;
  if (observations.system) on_bus = observations.system->pci_gpus;
  std::erase_if(on_bus, [&](const PciGpu& gpu) { return vendor && gpu.vendor != vendor; });
  if (!parts.empty()) {
    add_finding(findings, "gpus", Status::kOk, fmt::format("{}", fmt::join(parts, ", ")));
  } else if (vendor == Vendor::kCpu) {
    add_finding(findings, "gpus", Status::kSkip, "GPUs were not looked at, as --vendor cpu wants",
                "leave out --vendor");
  } else if (on_bus.empty() && !has_silent_driver) {
    const auto* kind = !vendor ? "" : vendor == Vendor::kNvidia ? "NVIDIA " : "AMD ";
    add_finding(findings, "gpus", Status::kOk,
                fmt::format("no {}GPU in this machine{}", kind, vendor ? "" : "; programs use the CPU"));
  }
  std::vector<std::string> hidden, others;
  for (const auto& gpu : on_bus) {
    if (known.contains(gpu.pci_bus_id)) continue;
    (is_accelerator_driver(gpu.kernel_driver) ? hidden : others)
        .push_back(fmt::format("{} ({})", gpu.pci_bus_id, gpu.kernel_driver.empty() ? "no driver" : gpu.kernel_driver));
  }
  if (!others.empty()) {
    add_finding(findings, "gpu-driver", parts.empty() ? Status::kFail : Status::kWarn,
                fmt::format("{} on the PCI bus, without the vendor's driver", fmt::join(others, ", ")),
                "install and load the driver (nvidia, amdgpu); nouveau cannot compute, and a GPU of vfio-pci "
                "belongs to a virtual machine");
  }
  // A separate finding reports drivers that do not work at all.
  if (hidden.empty() || parts.empty()) return;
  if (observations.system->is_contained) {
    add_finding(findings, "gpus-not-shown", Status::kOk,
                fmt::format("{} of the machine not shown in this container or job", fmt::join(hidden, ", ")));
  } else {
    add_finding(findings, "gpus-not-shown", Status::kWarn,
                fmt::format("{} on the PCI bus, but not among the devices of the driver", fmt::join(hidden, ", ")),
                "search `dmesg` for it; if it has failed, a reboot may bring it back");
  }
}

void check_nvidia_driver(const Observations& observations, Findings& findings) {
  const auto* nvml = backend_of(observations.snapshot, "nvml");
  const auto* system = observations.system ? &*observations.system : nullptr;
  if (!has_vendor(observations, Vendor::kNvidia)) {
    if (observations.vendor && observations.vendor != Vendor::kNvidia) return;
    if (nvml != nullptr && nvml->is_broken) {
      add_finding(findings, "nvidia-driver", Status::kFail, nvml->reason,
                  "see `dmesg`; after an update of the driver, reboot, or reload its kernel modules");
      return;
    }
    // Container images often have NVML without a driver.
    if (nvml != nullptr && !nvml->is_available && system != nullptr && !system->nvml.path.empty()) {
      add_finding(
          findings, "nvidia-driver", Status::kWarn,
          fmt::format("{} is installed, but does not work: {}", system->nvml.path, nvml->reason),
          "ignore this if there is no NVIDIA GPU; otherwise see `dmesg`, and reboot after an update of the driver");
    }
    return;
  }
  if (nvml != nullptr && !nvml->is_available) {
    add_finding(findings, "nvidia-driver", Status::kFail, nvml->reason,
                system != nullptr && system->nvidia_module_version.empty()
                    ? std::string(kInstallDriver) + "; if it is installed: `sudo modprobe nvidia`, and `dmesg`"
                    : "see `dmesg`; after an update of the driver, reboot");
  } else if (nvml != nullptr) {
    add_finding(findings, "nvidia-driver", Status::kOk,
                fmt::format("{}, for CUDA up to {}", nvml->driver_version.empty() ? "?" : nvml->driver_version,
                            nvml->api_version.empty() ? "?" : nvml->api_version));
  }
  if (system == nullptr) return;
  const auto& module = system->nvidia_module_version;
  if (differ(module, system->nvml.version) || differ(module, system->cuda.version) ||
      differ(system->nvml.version, system->cuda.version)) {
    add_finding(findings, "driver-versions", Status::kFail,
                fmt::format("the kernel module is {}, libnvidia-ml {}, libcuda {}: they must be the same",
                            module.empty() ? "?" : module, system->nvml.version.empty() ? "?" : system->nvml.version,
                            system->cuda.version.empty() ? "?" : system->cuda.version),
                "reboot, or unload and load the module after ending all programs on GPUs; in a container, start "
                "it again");
  }
  if (system->cuda.path.empty()) {
    add_finding(findings, "libcuda", Status::kFail, "libcuda.so.1 is not found: no program can use CUDA",
                "install the driver's libcuda1; in a container, NVIDIA_DRIVER_CAPABILITIES must name compute");
  } else {
    add_finding(findings, "libcuda", Status::kOk, system->cuda.path);
  }
}

void check_amd_driver(const Observations& observations, Findings& findings) {
  if (!has_vendor(observations, Vendor::kAmd) || !observations.system) return;
  const auto& system = *observations.system;
  if (system.has_kfd) {
    add_finding(findings, "amd-driver", Status::kOk, "amdgpu with its compute interface, KFD");
  } else {
    add_finding(findings, "amd-driver", Status::kFail, "amdgpu's compute interface (KFD) is missing",
                "load amdgpu (`sudo modprobe amdgpu`), or install AMD's driver; in a container pass /dev/kfd and "
                "/dev/dri");
  }
  if (system.hip.path.empty()) {
    add_finding(findings, "rocm", Status::kWarn, "libamdhip64.so is not found here",
                "install ROCm, load its module, or use a torch that brings it");
  } else {
    add_finding(
        findings, "rocm", Status::kOk,
        fmt::format("{}{}", system.hip.path, system.rocm_version.empty() ? "" : ", ROCm " + system.rocm_version));
  }
}

void check_permissions(const Observations& observations, Findings& findings) {
  if (!observations.system) return;
  const auto& nodes = observations.system->nodes;
  const bool has_nvidia = has_vendor(observations, Vendor::kNvidia), has_amd = has_vendor(observations, Vendor::kAmd);
  if (!has_nvidia && !has_amd) return;
  std::vector<std::string> denied;
  for (const auto& node : nodes) {
    const bool is_amd = node.path == "/dev/kfd" || node.path.starts_with("/dev/dri/");
    // CUDA does not use render nodes.
    if (!node.is_usable && (is_amd ? has_amd : has_nvidia))
      denied.push_back(fmt::format("{} ({})", node.path, node.owner));
  }
  if (!denied.empty()) {
    add_finding(findings, "permissions", Status::kFail,
                fmt::format("this user may not use {}", fmt::join(denied, ", ")),
                "join the group that owns them (render, video): `sudo usermod -aG render,video $USER`, then log "
                "in again");
  } else if (!nodes.empty()) {
    add_finding(findings, "permissions", Status::kOk, fmt::format("{} device files can be used", nodes.size()));
  }
  const auto has = [&](std::string_view path) {
    return std::ranges::any_of(nodes, [&](const auto& node) { return node.path == path; });
  };
  if (has_nvidia && has("/dev/nvidiactl") && !has("/dev/nvidia-uvm")) {
    add_finding(findings, "nvidia-uvm", Status::kWarn, "/dev/nvidia-uvm is missing: CUDA cannot start without it",
                "`sudo nvidia-modprobe -u -c 0`; in a container pass it too");
  }
}

void check_visibility(const Observations& observations, Findings& findings) {
  const auto warnings = contradictions(observations.environment, observations.snapshot);
  for (const auto& warning : warnings) {
    add_finding(findings, "visibility", Status::kWarn, warning, "`yoke visible` explains what programs see");
  }
}

void check_runtime(const Observations& observations, Findings& findings) {
  if (!observations.runtime) return;
  const auto& runtime = *observations.runtime;
  const int64_t nvidia = count_visible(observations, Vendor::kNvidia), amd = count_visible(observations, Vendor::kAmd);
  const auto num_gpus = gpus_of(observations.snapshot).size();
  if (num_gpus == 0) return;
  const auto expected = nvidia > 0 ? nvidia : amd;
  if (runtime.num_gpus > 0 && runtime.num_gpus >= expected) {
    add_finding(findings, "runtime", Status::kOk, "a program started here sees " + counted(runtime.num_gpus, "GPU"));
  } else if (expected == 0 && runtime.num_gpus == 0) {
    add_finding(findings, "runtime", Status::kWarn, "variables hide every GPU from programs started here",
                "`yoke visible` says which; unset them");
  } else if (runtime.num_gpus == 0) {
    add_finding(findings, "runtime", Status::kFail,
                fmt::format("the driver lists GPUs, but a program started here sees none: {}", runtime.reason),
                "look at the permissions above, at /dev/nvidia-uvm and at `dmesg`; a driver that was updated "
                "needs a reboot");
  } else {
    add_finding(findings, "runtime", Status::kWarn,
                fmt::format("a program started here sees {} of {} GPUs", runtime.num_gpus, expected),
                "a lost GPU, MIG mode or a cgroup may be why; see the lines below, and `yoke visible`");
  }
}

void check_torch(const Observations& observations, Findings& findings) {
  if (!observations.torches) {
    add_finding(findings, "torch", Status::kSkip, "looking for libtorch took too long", "a slow or dead file system?");
    return;
  }
  const bool has_nvidia = has_vendor(observations, Vendor::kNvidia), has_amd = has_vendor(observations, Vendor::kAmd);
  const auto* nvml = backend_of(observations.snapshot, "nvml");
  const std::string driver_cuda = nvml != nullptr ? nvml->api_version : "";
  if (observations.torches->empty()) {
    add_finding(findings, "torch", Status::kSkip, "no libtorch: not in YOKE_TORCH_DIR, the active Python, or .deps",
                has_amd && !has_nvidia ? std::string(kInstallTorchForRocm) + ", if you want to train"
                                       : "scripts/setup installs one, if you want to train with yoke or PyTorch");
  }
  for (const auto& torch : *observations.torches) {
    const auto build = torch.has_cuda  ? fmt::format("CUDA {}", torch.cuda_version)
                       : torch.has_hip ? fmt::format("ROCm {}", torch.hip_version)
                                       : std::string("CPU");
    Finding finding{"torch",
                    Status::kOk,
                    {},
                    fmt::format("{} for {} ({}, {})", torch.version.empty() ? "libtorch" : torch.version, build,
                                torch.path, torch.from),
                    ""};
    const auto needs = major_of(torch.cuda_version), has = major_of(driver_cuda);
    if (has_nvidia && torch.has_cuda && needs && has && *needs > *has) {
      finding.status = Status::kFail;
      finding.found += fmt::format(": the driver supports CUDA up to {}", driver_cuda);
      finding.advice = fmt::format("update the driver, or install a torch for CUDA {}", *has);
    } else if (has_nvidia && !torch.has_cuda) {
      finding.status = Status::kWarn;
      finding.found += ": it cannot use the NVIDIA GPU of this machine";
      finding.advice = "install a torch for CUDA";
    } else if (has_amd && !has_nvidia && !torch.has_hip) {
      finding.status = Status::kWarn;
      finding.found += ": it cannot use the AMD GPU of this machine, and yoke does not train on the CPU unasked";
      finding.advice = std::string(kInstallTorchForRocm) + "; or set YOKE_DEVICE=cpu";
    }
    findings.push_back(std::move(finding));
  }
}

void check_collectives(const Observations& observations, Findings& findings) {
  if (!observations.system || !observations.torches) return;
  const auto count = [&](Vendor vendor) {
    const auto& all = observations.snapshot.devices;
    return std::ranges::count_if(all, [&](const auto& device) { return device.vendor == vendor; });
  };
  const auto check = [&](const char* id, const LibraryFile& installed, const char* file) {
    std::string path = installed.path;
    for (const auto& torch : *observations.torches) {
      if (!torch.nccl_path.empty() && torch.nccl_path.find(file) != std::string::npos) path = torch.nccl_path;
    }
    if (!path.empty()) {
      add_finding(findings, id, Status::kOk,
                  fmt::format("{}{}", path,
                              path == installed.path && !installed.version.empty() ? ", " + installed.version : ""));
    } else {
      add_finding(findings, id, Status::kWarn, fmt::format("{}.so is not found: GPUs communicate through it", file),
                  "a torch for GPUs brings it, unless it is built in");
    }
  };
  if (count(Vendor::kNvidia) > 1) check("nccl", observations.system->nccl, "libnccl");
  if (count(Vendor::kAmd) > 1) check("rccl", observations.system->rccl, "librccl");
}

}  // namespace yoke::device
