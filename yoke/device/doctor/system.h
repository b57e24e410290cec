// yoke/device/doctor/system.h -- the part of the doctor's observations that this machine's files tell.
#pragma once

#include <filesystem>

#include "yoke/base/environment.h"
#include "yoke/device/doctor/doctor.h"

namespace yoke::device {

/// Reads proc, sys, dev and etc below `sysroot`; limits of this process only where that is "/". Needs no permission:
/// what cannot be read is left out. May block where a driver or a file system hangs.
System read_system(const std::filesystem::path& sysroot, const Environment& environment);

}  // namespace yoke::device
