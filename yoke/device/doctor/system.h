// yoke/device/doctor/system.h -- the part of the doctor's observations that comes from this machine's files.
#pragma once

#include <filesystem>

#include "yoke/base/environment.h"
#include "yoke/device/doctor/doctor.h"

namespace yoke::device {

/// Reads proc, sys, dev and etc below `sysroot`. The limits of this process are read only if `sysroot` is "/". Needs no
/// privileges: files that cannot be read are left out. May block if a driver or a file system hangs.
System read_system(const std::filesystem::path& sysroot, const Environment& environment);

}  // namespace yoke::device
