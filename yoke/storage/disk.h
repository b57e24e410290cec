// yoke/storage/disk.h -- what kind of disk a mount is on, as sysfs says.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "yoke/storage/mount_table.h"

namespace yoke::storage {

/// In the order of their usual speed.
enum class DiskKind { kMemory, kNvme, kSsd, kVirtual, kHardDisk, kNetwork, kUnknown };
std::string_view name(DiskKind kind);  ///< "memory", "nvme", "ssd", "virtual disk", "hard disk", "network", "unknown"

struct Disk {
  DiskKind kind = DiskKind::kUnknown;
  std::string device;  ///< "nvme0n1", "tmpfs", "server:/data".

  bool operator==(const Disk&) const = default;
};

/// Several disks behind one (RAID, LVM) count as the slowest of them.
Disk disk_of(const Mount& mount, const std::filesystem::path& sys = "/sys");

}  // namespace yoke::storage
