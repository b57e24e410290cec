// yoke/device/doctor/kernel_log.h -- reads the kernel's messages about GPUs: NVIDIA's Xid errors, amdgpu's resets and
// timeouts.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::device {

struct KernelEvent {
  std::string pci_bus_id;      ///< "0000:3b:00.0"
  std::optional<int64_t> xid;  ///< NVIDIA's error number; nullopt for amdgpu.
  std::string text;            ///< As the kernel wrote it; any bytes.
  std::chrono::microseconds since_boot{0};

  bool operator==(const KernelEvent&) const = default;
};

struct KernelLog {
  std::string reason;  ///< Why the log could not be read; empty if it was read.
  std::vector<KernelEvent> events;
  std::chrono::microseconds uptime{0};
};

/// Parses `records`, which have the form of /dev/kmsg ("6,1234,5678901,-;text"), one per line.
std::vector<KernelEvent> parse_kernel_log(std::string_view records);

/// Reads all messages that are still in the kernel's ring buffer. Does not throw: KernelLog::reason has the error.
KernelLog read_kernel_log(const std::filesystem::path& sysroot = "/");

/// The meaning of an Xid, such as "the GPU has fallen off the bus"; `text` is empty if it is not known.
struct XidMeaning {
  std::string_view text;
  bool is_hardware = false;  ///< True if the usual cause is the hardware or its driver, false if it is a program.
};
XidMeaning meaning_of_xid(int64_t xid);

}  // namespace yoke::device
