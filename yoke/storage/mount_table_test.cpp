#include "yoke/storage/mount_table.h"

#include <gtest/gtest.h>

namespace yoke::storage {
namespace {

TEST(MountTable, IsParsed) {
  const auto mounts = parse_mountinfo(
      "22 28 0:21 / /sys rw,nosuid shared:7 master:2 - sysfs sysfs rw\n"
      "42 27 0:39 / /home/ada/m rw,nosuid,nodev - fuse.sshfs srv:/d rw,user_id=1000,group_id=100\n"
      "43 27 8:2 /sub / rw - ext4 /dev/sda2\n"
      "not a line\n"
      "44 27 0:40 / /x rw shared:1\n"
      "44 27 0-40 / /x rw - tmpfs tmpfs rw\n");
  ASSERT_EQ(mounts.size(), 3U);
  EXPECT_EQ(mounts[0].type, "sysfs");
  const Mount sshfs{
      42, 0, 39, "/", "/home/ada/m", "rw,nosuid,nodev", "fuse.sshfs", "srv:/d", "rw,user_id=1000,group_id=100"};
  EXPECT_EQ(mounts[1], sshfs);
  EXPECT_EQ(mounts[2].root, "/sub");
  EXPECT_EQ(mounts[2].super_options, "");
}

TEST(MountTable, OctalEscapesAreUndone) {
  const auto point_of = [](const std::string& text) {
    return parse_mountinfo("1 2 0:3 / " + text + " rw - tmpfs tmpfs rw\n").at(0).point;
  };
  EXPECT_EQ(point_of("/a\\040b\\011c\\012d\\134e\\043f"), "/a b\tc\nd\\e#f");
  EXPECT_EQ(point_of("/\\303\\244"), "/\u00e4");
  for (const char* kept : {"/a\\", "/a\\04", "/a\\048", "/a\\777", "/a\\x41"}) EXPECT_EQ(point_of(kept), kept);
}

TEST(MountTable, TheLongestAndLatestMountHasThePath) {
  const auto mounts = parse_mountinfo(
      "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
      "2 1 8:2 / /data rw - ext4 /dev/sda2 rw\n"
      "3 2 0:5 / /data rw - tmpfs above rw\n"
      "4 1 0:6 / /data/deep rw - tmpfs deep rw\n");
  EXPECT_EQ(mount_of(mounts, "/database")->id, 1);
  EXPECT_EQ(mount_of(mounts, "/data")->id, 3);
  EXPECT_EQ(mount_of(mounts, "/data/x")->id, 3);
  EXPECT_EQ(mount_of(mounts, "/data/deep/er")->id, 4);
  EXPECT_EQ(mount_of({}, "/data"), nullptr);
}

TEST(MountTable, OptionsHaveValues) {
  EXPECT_EQ(option_value("rw,user_id=1000,group_id=100", "user_id"), "1000");
  EXPECT_EQ(option_value("rw,other_user_id=7", "user_id"), std::nullopt);
  EXPECT_EQ(option_value("", "user_id"), std::nullopt);
}

}  // namespace
}  // namespace yoke::storage
