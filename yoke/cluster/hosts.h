// yoke/cluster/hosts.h -- parses lists of hosts from the command line and from host files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::cluster {

struct HostEntry {
  std::string name;  ///< The name that ssh gets: a host name, an address, or an entry of ssh's configuration.
  std::optional<int64_t> num_ranks;  ///< In host files of Open MPI and DeepSpeed, the value of "slots".

  bool operator==(const HostEntry&) const = default;
};

/// Parses "a,b,c", "n[01-04]", "user@a:4" (4 ranks).
/// Errors  kInvalidArgument with the host if its name is empty, appears twice, or has a character that is not allowed
/// in host names.
std::vector<HostEntry> parse_hosts(std::string_view text);

/// Reads a file with one host per line. "slots=N" or ":N" after the host is its number of ranks; '#' begins a comment.
/// Errors  those of parse_hosts(), with the line; as errno says, with the path.
std::vector<HostEntry> read_hostfile(const std::filesystem::path& path);

}  // namespace yoke::cluster
