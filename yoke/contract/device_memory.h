// yoke/contract/device_memory.h -- how much of a device's memory a program may use, if it shares the device with
// others.
#pragma once

namespace yoke {

/// The variable that `yoke claim --share` sets, in bytes and for each device that the program sees. It is a request:
/// yoke's own programs limit libtorch's allocator by it, and others may read it.
inline constexpr const char* kDeviceMemoryVariable = "YOKE_DEVICE_MEMORY_BYTES";

}  // namespace yoke
