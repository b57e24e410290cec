// yoke/device/detail/backend.h -- the interface to one way of finding and reading devices: NVML, amdgpu's sysfs, or the
// CPU.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "yoke/device/device.h"

namespace yoke::device {

/// Any call may block for ever, because drivers may. The live source calls open() on one thread, then read() on one
/// thread per device, and never twice at once for the same device. The functions do not throw. They state failures in
/// the report or in Device::state.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;  ///< Used as BackendReport::backend.
  virtual Vendor vendor() const = 0;

  virtual BackendReport open() noexcept = 0;

  /// REQUIRES: open() has returned.
  virtual int64_t num_devices() const = 0;

  /// Fills `device`, in which only vendor and index are set. Reads slow parts last, and calls `publish(device)` before
  /// each of them.
  virtual void read(int64_t number, const Want& want, Device& device,
                    const std::function<void(const Device&)>& publish) noexcept = 0;
};

/// NVIDIA's management library, opened by name. Facts that it lacks (such as the NUMA node) are read below `sysroot`.
std::unique_ptr<Backend> make_nvml_backend(const std::filesystem::path& sysroot = "/",
                                           const std::string& library = "libnvidia-ml.so.1");

/// The kernel's files about AMD GPUs (KFD topology, amdgpu) below `sysroot`. Needs no library.
std::unique_ptr<Backend> make_amdgpu_backend(const std::filesystem::path& sysroot = "/");

/// The processors and memory of this machine, as one device.
std::unique_ptr<Backend> make_cpu_backend(const std::filesystem::path& sysroot = "/");

}  // namespace yoke::device
