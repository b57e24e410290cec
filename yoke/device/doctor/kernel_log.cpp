#include "yoke/device/doctor/kernel_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "yoke/base/environment.h"
#include "yoke/base/file.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/device/bus_id.h"

namespace yoke::device {
namespace {

/// Removes the text up to and including `separator` from `rest`. Returns the text before the separator, or nullopt if
/// there is no separator.
std::optional<std::string_view> take_until(std::string_view& rest, std::string_view separator) {
  const auto end = rest.find(separator);
  if (end == rest.npos) return std::nullopt;
  const auto taken = rest.substr(0, end);
  rest.remove_prefix(end + separator.size());
  return taken;
}

/// Converts "PCI:0000:3b:00" and "0000:3b:00.0" to "0000:3b:00.0". Returns an empty text for any other form.
std::string bus_id(std::string_view text) {
  if (text.starts_with("PCI:")) text.remove_prefix(4);
  return std::ranges::count(text, ':') == 2 ? parse_bus_id(text).value_or("") : "";
}

/// Parses "NVRM: Xid (PCI:0000:3b:00): 79, pid=..., GPU has fallen off the bus."
std::optional<KernelEvent> parse_xid(std::string_view message) {
  if (!take_until(message, "NVRM: Xid (")) return std::nullopt;
  const auto where = take_until(message, "): ");
  if (!where) return std::nullopt;
  const auto number = parse_int(message.substr(0, message.find_first_not_of("0123456789")));
  const auto id = bus_id(*where);
  if (!number || id.empty()) return std::nullopt;
  return KernelEvent{.pci_bus_id = id, .xid = number, .text = std::string(message)};
}

/// Parses "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!" and "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring ...".
std::optional<KernelEvent> parse_amdgpu(std::string_view message) {
  const auto has = [&](std::string_view text) { return message.find(text) != message.npos; };
  if (!has("GPU reset begin") && !has("GPU reset(") && !(has("ring ") && has(" timeout"))) return std::nullopt;
  const auto begin = message.find("amdgpu ");
  if (begin == message.npos) return std::nullopt;
  auto rest = message.substr(begin + 7);
  const auto where = take_until(rest, ": ");
  return KernelEvent{.pci_bus_id = bus_id(where.value_or("")), .text = std::string(message)};
}

std::chrono::microseconds read_uptime(const std::filesystem::path& sysroot) {
  const double seconds = std::strtod(text_of(sysroot / "proc/uptime").c_str(), nullptr);
  return std::chrono::microseconds(static_cast<int64_t>(std::clamp(seconds, 0.0, 1e10) * 1e6));
}

struct Meaning {
  int64_t xid;
  XidMeaning meaning;
};
// NVIDIA's document "Xid Errors" has the complete list.
constexpr std::array kMeanings = {
    Meaning{13, {"an exception in a program's kernel", false}},
    Meaning{31, {"a program read or wrote memory that is not its own", false}},
    Meaning{43, {"a program's work was stopped after an error", false}},
    Meaning{45, {"a program's channels were torn down, as when it is killed", false}},
    Meaning{48, {"a memory error that ECC cannot correct", true}},
    Meaning{61, {"the firmware stopped", true}},
    Meaning{62, {"the firmware stopped", true}},
    Meaning{63, {"bad memory was marked for replacement", true}},
    Meaning{64, {"bad memory could not be marked for replacement", true}},
    Meaning{74, {"an error of NVLink", true}},
    Meaning{79, {"the GPU has fallen off the bus", true}},
    Meaning{92, {"many memory errors that ECC corrected", true}},
    Meaning{94, {"a memory error that ECC cannot correct; one program was hit", true}},
    Meaning{95, {"a memory error that ECC cannot correct; any program may be hit", true}},
    Meaning{119, {"the GPU's system processor does not answer", true}},
    Meaning{120, {"the GPU's system processor failed", true}},
};

}  // namespace

XidMeaning meaning_of_xid(int64_t xid) {
  const auto found = std::ranges::find_if(kMeanings, [&](const auto& m) { return m.xid == xid; });
  return found == kMeanings.end() ? XidMeaning{"see NVIDIA's list of Xid errors", false} : found->meaning;
}

std::vector<KernelEvent> parse_kernel_log(std::string_view records) {
  std::vector<KernelEvent> events;
  for (auto line : lines_of(records)) {
    // A record begins with priority, sequence, microseconds and flags. Its continuation lines begin with a space.
    if (line.starts_with(' ') || !take_until(line, ",") || !take_until(line, ",")) continue;
    const auto time = parse_int(take_until(line, ",").value_or(""));
    if (!time || !take_until(line, ";")) continue;
    // Only the kernel and root can write to /dev/kmsg, so the messages can be trusted.
    auto event = parse_xid(line);
    if (!event) event = parse_amdgpu(line);
    if (!event) continue;
    event->since_boot = std::chrono::microseconds(*time);
    events.push_back(*std::move(event));
  }
  return events;
}

KernelLog read_kernel_log(const std::filesystem::path& sysroot) {
  KernelLog log;
  const UniqueFd fd(open((sysroot / "dev/kmsg").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd) {
    log.reason = std::generic_category().message(errno);
    return log;
  }
  std::array<char, 16384> record = {};  // each read returns one record, and fails if the buffer is too small
  std::string records;
  constexpr size_t kMost = 16 << 20;
  while (records.size() < kMost) {
    const ssize_t count = read(fd.value(), record.data(), record.size());
    if (count == 0 || (count < 0 && errno == EAGAIN)) break;
    if (count > 0) {
      records.append(record.data(), static_cast<size_t>(count));
    } else if (errno != EPIPE && errno != EINTR) {  // EPIPE: the record was overwritten before it was read
      log.reason = std::generic_category().message(errno);
      return log;
    }
  }
  log.events = parse_kernel_log(records);
  log.uptime = read_uptime(sysroot);
  return log;
}

}  // namespace yoke::device
