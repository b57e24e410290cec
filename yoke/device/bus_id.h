// yoke/device/bus_id.h -- the names of devices on the PCI bus. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace yoke::device {

/// Returns the bus id as sysfs writes it, "0000:c1:00.0", from that of NVML ("00000000:C1:00.0"), of the kernel's log
/// ("0000:c1:00"), or without its domain ("c1:00.0"). Virtual machines and VMD have domains of more than four digits
/// ("10000:e1:00.0"). Returns nullopt for any other text.
std::optional<std::string> parse_bus_id(std::string_view text);

}  // namespace yoke::device
