// yoke/base/host.h -- this host's name, and the folders that a user has on it.
#pragma once

#include <sys/socket.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "yoke/base/environment.h"

namespace yoke {

/// Returns the name of this host, as `hostname` prints it; empty if the kernel does not tell it.
std::string host_name();

/// Returns an address in digits, without its port. An IPv4 client of an IPv6 socket has its IPv4 address.
std::string address_text(const sockaddr* address, socklen_t size);

/// The folders of the XDG Base Directory Specification for what programs keep for a user.
enum class UserFolder {
  kConfig,  ///< XDG_CONFIG_HOME, by default ~/.config
  kData,    ///< XDG_DATA_HOME, by default ~/.local/share
  kState,   ///< XDG_STATE_HOME, by default ~/.local/state
};

/// Returns the folder of the user, which may not exist yet. As the specification asks, a relative path in the variable
/// counts as none. Returns nullopt without an absolute path in the variable or in HOME.
std::optional<std::filesystem::path> user_folder(UserFolder folder, const Environment& environment);

/// Makes a folder that this user alone can write, and those above it. `why` is a clause for the message, such as
/// ", because secrets are in it". Errors  kPermissionDenied: the folder exists, and others can write to it or own it;
/// else as errno says.
void make_private_folder(const std::filesystem::path& folder, std::string_view why = "");

}  // namespace yoke
