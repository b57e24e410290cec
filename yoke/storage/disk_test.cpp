#include "yoke/storage/disk.h"

#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace yoke::storage {
namespace {

/// A sysfs with a disk, a partition of it, and device numbers.
class FakeSys {
 public:
  void add_disk(const std::string& name, int64_t minor, const char* rotational) const {
    folder_.write("block/" + name + "/queue/rotational", rotational);
    link(name, "../../block/" + name, minor);
  }
  void add_partition(const std::string& disk, const std::string& name, int64_t minor) const {
    folder_.write("block/" + disk + "/" + name + "/partition", "1\n");
    link(name, "../../block/" + disk + "/" + name, minor);
  }
  void add_slave(const std::string& disk, const std::string& slave) const {
    std::filesystem::create_directories(folder_.path("block/" + disk + "/slaves"));
    std::filesystem::create_symlink("../../" + slave, folder_.path("block/" + disk + "/slaves/" + slave));
  }
  Disk disk(int64_t minor) const {
    return disk_of({.major = 259, .minor = minor, .type = "ext4", .source = "/dev/x"}, folder_.path());
  }
  Disk disk(const Mount& mount) const { return disk_of(mount, folder_.path()); }

 private:
  void link(const std::string& name, const std::string& target, int64_t minor) const {
    folder_.write("dev/block/.keep", "");
    folder_.write("class/block/.keep", "");
    std::filesystem::create_symlink(target, folder_.path("dev/block/259:" + std::to_string(minor)));
    std::filesystem::create_symlink(target, folder_.path("class/block/" + name));
  }
  test::TemporaryFolder folder_;
};

TEST(Disk, ItsKindIsWhatSysfsSays) {
  const FakeSys sys;
  sys.add_disk("nvme0n1", 0, "0\n");
  sys.add_partition("nvme0n1", "nvme0n1p2", 1);
  sys.add_disk("sda", 2, "0\n");
  sys.add_disk("sdb", 3, "1\n");
  sys.add_partition("sdb", "sdb1", 4);
  sys.add_disk("vda", 5, "1\n");
  sys.add_disk("md0", 6, "0\n");
  sys.add_slave("md0", "nvme0n1");
  sys.add_disk("md1", 7, "0\n");
  sys.add_slave("md1", "nvme0n1");
  sys.add_slave("md1", "sdb");
  EXPECT_EQ(sys.disk(0), (Disk{DiskKind::kNvme, "nvme0n1"}));
  EXPECT_EQ(sys.disk(1), (Disk{DiskKind::kNvme, "nvme0n1p2"}));
  EXPECT_EQ(sys.disk(2), (Disk{DiskKind::kSsd, "sda"}));
  EXPECT_EQ(sys.disk(3), (Disk{DiskKind::kHardDisk, "sdb"}));
  EXPECT_EQ(sys.disk(4), (Disk{DiskKind::kHardDisk, "sdb1"}));
  EXPECT_EQ(sys.disk(5), (Disk{DiskKind::kVirtual, "vda"}));
  EXPECT_EQ(sys.disk(6), (Disk{DiskKind::kNvme, "md0"}));
  EXPECT_EQ(sys.disk(7), (Disk{DiskKind::kHardDisk, "md1"})) << "the slowest counts";
  EXPECT_EQ(sys.disk(99), (Disk{DiskKind::kUnknown, "/dev/x"}));
  EXPECT_EQ(sys.disk({.minor = 40, .type = "btrfs", .source = "/dev/sda"}).kind, DiskKind::kSsd);
}

TEST(Disk, WithoutADiskTheTypeSaysIt) {
  const FakeSys sys;
  EXPECT_EQ(sys.disk({.type = "nfs4", .source = "server:/d"}), (Disk{DiskKind::kNetwork, "server:/d"}));
  EXPECT_EQ(sys.disk({.type = "fuse.sshfs", .source = "server:/d"}).kind, DiskKind::kNetwork);
  EXPECT_EQ(sys.disk({.type = "tmpfs", .source = "none"}), (Disk{DiskKind::kMemory, "tmpfs"}));
  EXPECT_EQ(sys.disk({.type = "overlay", .source = "overlay"}), (Disk{DiskKind::kUnknown, "overlay"}));
}

}  // namespace
}  // namespace yoke::storage
