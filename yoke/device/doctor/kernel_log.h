// yoke/device/doctor/kernel_log.h -- what the kernel said about GPUs: NVIDIA's Xid errors, amdgpu's resets and
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
  std::optional<int64_t> xid;  ///< NVIDIA's number of the error; nullopt: amdgpu.
  std::string text;            ///< As the kernel wrote it; any bytes.
  std::chrono::microseconds since_boot{0};

  bool operator==(const KernelEvent&) const = default;
};

struct KernelLog {
  std::string reason;  ///< Why it could not be read; empty when it was.
  std::vector<KernelEvent> events;
  std::chrono::microseconds uptime{0};
};

/// `records` as /dev/kmsg gives them ("6,1234,5678901,-;text"), one a line.
std::vector<KernelEvent> parse_kernel_log(std::string_view records);

/// All that the ring still holds. Errors are in `reason`; nothing is thrown.
KernelLog read_kernel_log(const std::filesystem::path& sysroot = "/");

/// What an Xid says, as far as it is known: "the GPU has fallen off the bus".
struct XidMeaning {
  std::string_view text;
  bool is_hardware = false;  ///< Or its driver; else most often the program's fault.
};
XidMeaning meaning_of_xid(int64_t xid);

}  // namespace yoke::device
