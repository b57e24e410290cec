// yoke/storage/mount_table.h -- which file systems are mounted where, as the kernel lists them. Pure.
//
// A file system that does not answer blocks whoever looks at a path on it. Reading the kernel's list never blocks, so
// commands find mounts by their text here, and look at paths only in child processes (in_children.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::storage {

/// A line of /proc/self/mountinfo. Texts may have any bytes: apply printable() before they reach a terminal.
struct Mount {
  int64_t id = 0;
  int64_t major = 0, minor = 0;  ///< The device number of the files; also names the connection of a FUSE mount.
  std::string root;              ///< The folder of the file system that is mounted.
  std::string point;
  std::string options;
  std::string type;    ///< "ext4", "fuse.sshfs".
  std::string source;  ///< "/dev/nvme0n1p2", "server:/data".
  std::string super_options;

  bool operator==(const Mount&) const = default;
};

/// Parses the whole file. Lines that are not understood are left out.
std::vector<Mount> parse_mountinfo(std::string_view text);

/// Reads /proc/self/mountinfo. Errors  as errno says.
std::vector<Mount> read_mounts();

/// The mount with the files of `path`; the last one mounted, if several are on one folder. REQUIRES: `path` is absolute
/// and normal, and contains no symbolic links. nullptr: there is none.
const Mount* mount_of(const std::vector<Mount>& mounts, const std::filesystem::path& path);

/// Whether `path` is `folder` or below it, by their texts.
bool is_within(std::string_view path, std::string_view folder);

/// The value of "NAME=VALUE" in a list of options that are separated by commas; nullopt: there is none.
std::optional<std::string> option_value(std::string_view options, std::string_view name);

}  // namespace yoke::storage
