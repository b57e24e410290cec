#include "yoke/storage/disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"

namespace yoke::storage {
namespace {

namespace fs = std::filesystem;

bool is_network(std::string_view type) {
  constexpr std::array<std::string_view, 14> kTypes = {"nfs",    "nfs4",   "cifs",     "smb3",      "lustre",
                                                       "beegfs", "gpfs",   "ceph",     "glusterfs", "9p",
                                                       "afs",    "wekafs", "orangefs", "virtiofs"};
  return std::ranges::find(kTypes, type) != kTypes.end() || type == "fuse.sshfs" || type == "fuse.glusterfs" ||
         type == "fuse.ceph" || type == "fuse.rclone" || type == "fuse.s3fs";
}

/// `folder` is that of a disk or a partition below /sys/block.
DiskKind kind_of_block(fs::path folder, int depth = 0) {
  if (is_there(folder / "partition")) folder = folder.parent_path();
  auto slowest = DiskKind::kMemory;
  bool has_slaves = false;
  for (const auto& slave : entries_of(folder / "slaves")) {
    std::error_code unresolved;
    const auto target = fs::canonical(slave, unresolved);
    if (unresolved || depth > 8) continue;
    has_slaves = true;
    slowest = std::max(slowest, kind_of_block(target, depth + 1));
  }
  if (has_slaves) return slowest;
  const auto name = folder.filename().string();
  if (name.starts_with("nvme")) return DiskKind::kNvme;
  if (name.starts_with("ram") || name.starts_with("zram") || name.starts_with("pmem")) return DiskKind::kMemory;
  // What a hypervisor says about rotation tells nothing about the disk behind it.
  if (name.starts_with("vd") || name.starts_with("xvd")) return DiskKind::kVirtual;
  if (name.starts_with("nbd") || name.starts_with("rbd") || name.starts_with("drbd")) return DiskKind::kNetwork;
  const auto rotational = read_number(folder / "queue/rotational");
  if (!rotational) return DiskKind::kUnknown;
  return *rotational == 0 ? DiskKind::kSsd : DiskKind::kHardDisk;
}

}  // namespace

std::string_view name(DiskKind kind) {
  switch (kind) {
    case DiskKind::kMemory: return "memory";
    case DiskKind::kNvme: return "nvme";
    case DiskKind::kSsd: return "ssd";
    case DiskKind::kVirtual: return "virtual disk";
    case DiskKind::kHardDisk: return "hard disk";
    case DiskKind::kNetwork: return "network";
    case DiskKind::kUnknown: return "unknown";
  }
  return "unknown";
}

Disk disk_of(const Mount& mount, const fs::path& sys) {
  if (is_network(mount.type)) return {DiskKind::kNetwork, mount.source};
  if (mount.type == "tmpfs" || mount.type == "ramfs" || mount.type == "devtmpfs")
    return {DiskKind::kMemory, mount.type};
  // File systems with several disks (btrfs) have device numbers of their own, and name one of the disks.
  const auto link = mount.major != 0 ? sys / "dev/block" / fmt::format("{}:{}", mount.major, mount.minor)
                                     : sys / "class/block" / std::string(base_name(mount.source));
  std::error_code error;
  const auto folder = mount.major != 0 || mount.source.starts_with("/dev/") ? fs::canonical(link, error) : fs::path();
  if (error || folder.empty()) return {DiskKind::kUnknown, mount.source};
  return {kind_of_block(folder), folder.filename().string()};
}

}  // namespace yoke::storage
