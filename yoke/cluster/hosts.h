// yoke/cluster/hosts.h -- lists of hosts, as given on the command line and in host files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::cluster {

struct HostEntry {
  std::string name;                  ///< The host for ssh: a name, an address, or an entry of ssh's configuration.
  std::optional<int64_t> num_ranks;  ///< "slots" in host files of Open MPI and DeepSpeed.

  bool operator==(const HostEntry&) const = default;
};

/// Parses "a,b,c", "n[01-04]", "user@a:4" (a host with a number of ranks).
/// Errors  kInvalidArgument with the host: its name is empty, given twice, or has a character that is not allowed in
/// host names.
std::vector<HostEntry> parse_hosts(std::string_view text);

/// Reads a file with one host per line. "slots=N" or ":N" after the host is its number of ranks; '#' begins a comment.
/// Errors  those of parse_hosts(), with the line; as errno says, with the path.
std::vector<HostEntry> read_hostfile(const std::filesystem::path& path);

}  // namespace yoke::cluster
