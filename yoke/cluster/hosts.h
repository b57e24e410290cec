// yoke/cluster/hosts.h -- which hosts a job is to run on, as people write it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::cluster {

struct HostEntry {
  std::string name;                  ///< What ssh is given: a name, a number, or an entry of its configuration.
  std::optional<int64_t> num_ranks;  ///< "slots" of Open MPI's and DeepSpeed's files.

  bool operator==(const HostEntry&) const = default;
};

/// "a,b,c", "n[01-04]", "user@a:4" with a number of ranks.
/// Errors  kInvalidArgument, naming the host: none, twice, or with a character that no host's name has.
std::vector<HostEntry> parse_hosts(std::string_view text);

/// A host in each line, with "slots=N" or ":N" behind it where it has a number of ranks of its own; '#' begins a
/// comment. Errors  as parse_hosts, with the line; as errno says, with the path.
std::vector<HostEntry> read_hostfile(const std::filesystem::path& path);

}  // namespace yoke::cluster
