#include "yoke/storage/sshfs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/support/message_of.h"

namespace yoke::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using yoke::test::message_of;

TEST(Sshfs, RemoteFoldersAreParsed) {
  const struct {
    const char *text, *host, *folder, *name;
  } cases[] = {
      {"server:/data/sets", "server", "/data/sets", "server-data-sets"},
      {"ada@server:sets", "ada@server", "sets", "server-sets"},
      {"server:", "server", "", "server"},
      {"server:/a:b", "server", "/a:b", "server-a:b"},
      {"[fe80::1]:/d", "[fe80::1]", "/d", "[fe80::1]-d"},
      {"ada@[fe80::1]:/d", "ada@[fe80::1]", "/d", "[fe80::1]-d"},
      {"server:/../etc", "server", "/../etc", "server-..-etc"},
      {"server:/", "server", "/", "server"},
  };
  for (const auto& [text, host, folder, name] : cases) {
    EXPECT_EQ(parse_remote(text), (RemoteFolder{host, folder})) << text;
    EXPECT_EQ(source_of(parse_remote(text)), text);
    EXPECT_EQ(default_name(parse_remote(text)), name) << text;
  }
  const struct {
    const char *text, *folder;
  } same[] = {{"s:sets//", "sets"}, {"s:/data/", "/data"}, {"s://", "/"}, {"s:~", ""}, {"s:~/sets", "sets"}};
  for (const auto& [text, folder] : same) EXPECT_EQ(parse_remote(text).folder, folder) << text;
  for (const char* wrong : {"server", "", ":/data", "/data:x", "[fe80::1", "-oProxyCommand=sh:/x"}) {
    EXPECT_THAT(message_of([&] { parse_remote(wrong); }), HasSubstr(wrong));
  }
}

TEST(Sshfs, HostsAreNamedWithAndWithoutTheUser) {
  EXPECT_TRUE(names_host("server", "server"));
  EXPECT_TRUE(names_host("server", "ada@server"));
  EXPECT_TRUE(names_host("ada@server", "ada@server"));
  EXPECT_FALSE(names_host("bob@server", "ada@server"));
  EXPECT_FALSE(names_host("server", "server2"));
  EXPECT_FALSE(names_host("ada", "ada@server"));
}

TEST(Sshfs, TheUsersOptionsComeFirst) {
  EXPECT_THAT(
      sshfs_command({{"server", "/data"}, "/home/ada/m", {"ro", "ConnectTimeout=1"}, "/home/ada/config"}),
      ElementsAre("sshfs", "-f", "server:/data/", "/home/ada/m", "-F", "/home/ada/config", "-o", "ro", "-o",
                  "ConnectTimeout=1", "-o", "reconnect", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=2",
                  "-o", "ConnectTimeout=5", "-o", "BatchMode=yes", "-o", "ssh_command=ssh -o RemoteCommand=none"));
  EXPECT_EQ(sshfs_command({{"server", ""}, "/m", {"ro,ssh_command=/opt/ssh"}}).back(), "BatchMode=yes");
}

TEST(Sshfs, ALinkToAFolderIsAskedForWithASlash) {
  for (const auto& [folder, source] : {std::pair{"sets", "server:sets/"}, {"/", "server:/"}, {"", "server:"}}) {
    EXPECT_EQ(sshfs_command({{"server", folder}, "/m"})[2], source);
  }
}

TEST(Sshfs, AMountInAnotherWayIsNotTheSame) {
  const std::string writable = "rw,nosuid,nodev,relatime", read_only = "ro,nosuid,nodev,relatime";
  const struct {
    std::vector<std::string> wanted;
    std::string kernel;
    std::vector<std::string> given;
    const char* difference;  // nullptr: there is none
  } cases[] = {
      {{}, writable, {}, nullptr},
      {{"ro"}, read_only, {"ro"}, nullptr},
      {{"ro"}, writable, {}, "it is writable"},
      {{}, read_only, {"ro"}, "it is read-only"},
      {{"ro,rw"}, writable, {}, nullptr},
      {{"rw", "nodev,ro"}, writable, {"nodev"}, "it is writable"},
      {{"idmap=user"}, writable, {}, "it lacks -o idmap=user"},
      {{"idmap=user"}, writable, {"port=22,idmap=user"}, nullptr},
      {{}, writable, {"idmap=user"}, nullptr},
  };
  for (const auto& [wanted, kernel, given, difference] : cases) {
    const SshfsRequest request{{"server", "/data"}, "/m", wanted};
    const auto found = difference_to(request, kernel, sshfs_command({request.remote, request.point, given}));
    EXPECT_EQ(found, difference == nullptr ? std::nullopt : std::optional<std::string>(difference));
  }
  const SshfsRequest other{{"server", "/data"}, "/m", {}, "/home/ada/config"};
  EXPECT_EQ(difference_to(other, writable, {"sshfs", "server:/data/", "/m"}), "it lacks -F /home/ada/config");
  EXPECT_EQ(difference_to({{"server", ""}, "/m", {"ro"}}, read_only, {"sshfs", "server:", "/m", "-oro"}), std::nullopt);
  EXPECT_EQ(difference_to(other, writable, {}), std::nullopt) << "its command line is not known";
}

TEST(Sshfs, TheAdviceFitsWhatWasSaid) {
  // sftp_check_root() of sshfs prints the host without brackets, the folder as it was asked for, and the reason.
  EXPECT_THAT(advice_after({"ada@server", "/data/x"}, "ada@server:/data/x/: No such file or directory"),
              HasSubstr("`ssh ada@server ls -ld '/data/x/'`"));
  EXPECT_THAT(advice_after({"[fe80::1]", ""}, "fe80::1:.: Permission denied"), HasSubstr("ls -ld '.'"));
  EXPECT_THAT(advice_after({"server", "/data"}, "Permission denied (publickey).; read: Connection reset by peer"),
              HasSubstr("does `ssh server true` work"));
}

TEST(Sshfs, WhatIsMissingIsNamed) {
  const SshfsRequest plain{{"server", ""}, "/m"}, shared{{"server", ""}, "/m", {"ro,allow_other"}};
  const struct {
    SshfsRequest request;
    FuseFacts facts;
    const char* part;  // nullptr: nothing is missing
  } cases[] = {
      {plain, {}, nullptr},
      {plain, {.has_sshfs = false}, "package sshfs"},
      {plain, {.has_fusermount = false}, "package fuse3"},
      {plain, {.device_error = ENOENT}, "modprobe fuse"},
      {plain, {.device_error = EACCES}, "chmod 666 /dev/fuse"},
      {plain, {.device_error = EMFILE}, "Too many open files"},
      {plain, {.fusermount_is_setuid = false}, "setuid"},
      {plain, {.fusermount_is_setuid = false, .is_root = true}, nullptr},
      {shared, {.config = "#user_allow_other\n"}, "/etc/fuse.conf lacks the line user_allow_other"},
      {shared, {.config = "# all\n user_allow_other # yes\n"}, nullptr},
      {shared, {.is_root = true}, nullptr},
      {plain, {.num_mounts = 999}, nullptr},
      {plain, {.num_mounts = 1000}, "mount_max in /etc/fuse.conf allows 1000"},
      {plain, {.config = "mount_max = 2\n", .num_mounts = 2}, "allows 2"},
      {plain, {.config = "mount_max = -1\n", .num_mounts = 2000}, nullptr},
  };
  for (const auto& [request, facts, part] : cases) {
    const auto obstacle = obstacle_to(request, facts);
    ASSERT_EQ(obstacle.has_value(), part != nullptr) << obstacle.value_or(part == nullptr ? "" : part);
    if (part != nullptr) {
      EXPECT_THAT(*obstacle, HasSubstr(part));
    }
  }
}

}  // namespace
}  // namespace yoke::storage
