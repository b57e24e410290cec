// yoke/storage/sshfs.h -- decides how sshfs is started, and what keeps it from working here. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::storage {

/// "ada@server:data/sets". The folder is empty for the home folder there, and has no slash at its end.
struct RemoteFolder {
  std::string host;  ///< As given to ssh: "server", "ada@server", "[fe80::1]", or an alias of ~/.ssh/config.
  std::string folder;

  bool operator==(const RemoteFolder&) const = default;
};

/// "~/sets" is "sets", because the server's sftp knows no "~". Errors  kInvalidArgument: `text` is not HOST:DIR.
RemoteFolder parse_remote(std::string_view text);

/// "server:/data"
std::string source_of(const RemoteFolder& remote);

/// The name of the folder below ~/mnt for a remote folder: "server-data-sets" for "ada@server:/data/sets".
std::string default_name(const RemoteFolder& remote);

/// Whether `word` names the host of a mount: "server" and "ada@server" both name that of "ada@server:/data".
bool names_host(std::string_view word, std::string_view host);

struct SshfsRequest {
  RemoteFolder remote;
  std::string point;                       ///< Absolute.
  std::vector<std::string> options = {};   ///< The values of the user's own -o.
  std::optional<std::string> config = {};  ///< The absolute path of a file for `ssh -F`.
};

/// The command line of sshfs in the foreground. The server is asked for a sign of life every 5 s, and given up after
/// two silent ones, so programs get an error after at most 15 s, and sshfs connects again when the server is back. ssh
/// takes the first value of an option, so the user's own come first. The folder has a slash at its end, without which
/// sshfs refuses a link to a folder.
std::vector<std::string> sshfs_command(const SshfsRequest& request);

/// What a mount that is there already lacks of a request, such as "it is writable" or "it lacks -o idmap=user";
/// nullopt: nothing. `options` are those of the kernel's list, `argv` the command line of its sshfs; empty: not known.
/// Pure.
std::optional<std::string> difference_to(const SshfsRequest& request, std::string_view options,
                                         const std::vector<std::string>& argv);

/// What to try next when sshfs has ended and `said` that. Pure.
std::string advice_after(const RemoteFolder& remote, std::string_view said);

/// What this machine has of what sshfs needs.
struct FuseFacts {
  bool has_sshfs = true;
  bool has_fusermount = true;
  bool fusermount_is_setuid = true;
  bool is_root = false;
  int device_error = 0;    ///< The errno of opening /dev/fuse for reading and writing; 0: it can be opened.
  std::string config;      ///< The text of /etc/fuse.conf.
  int64_t num_mounts = 0;  ///< FUSE mounts on this machine.
};

/// Says what is missing, where, and what an administrator must do; nullopt: nothing is missing.
std::optional<std::string> obstacle_to(const SshfsRequest& request, const FuseFacts& facts);

}  // namespace yoke::storage
