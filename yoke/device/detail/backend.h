// yoke/device/detail/backend.h -- the interface to one source of devices: NVML, amdgpu's sysfs, or the CPU.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "yoke/device/device.h"

namespace yoke::device {

/// A driver may hang, so any call may block for ever. The live source calls open() on one thread, then read() on one
/// thread per device, and never twice at once for the same device. The functions do not throw: failures are in the
/// report or in Device::state.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;  ///< Used as BackendReport::backend.
  virtual Vendor vendor() const = 0;

  virtual BackendReport open() noexcept = 0;

  /// REQUIRES: open() has returned.
  virtual int64_t num_devices() const = 0;

  /// Fills `device`, in which only vendor and index are set. Calls `publish(device)` before each slow part, so that
  /// what was read before is not lost if the part hangs.
  virtual void read(int64_t number, const Want& want, Device& device,
                    const std::function<void(const Device&)>& publish) noexcept = 0;
};

/// NVIDIA's management library, opened by the name `library`. Facts that it lacks (such as the NUMA node) are read
/// below `sysroot`.
std::unique_ptr<Backend> make_nvml_backend(const std::filesystem::path& sysroot = "/",
                                           const std::string& library = "libnvidia-ml.so.1");

/// Reads the kernel's files about AMD GPUs (KFD topology, amdgpu) below `sysroot`. Needs no library.
std::unique_ptr<Backend> make_amdgpu_backend(const std::filesystem::path& sysroot = "/");

/// The CPUs and memory of this machine, as one device.
std::unique_ptr<Backend> make_cpu_backend(const std::filesystem::path& sysroot = "/");

}  // namespace yoke::device
