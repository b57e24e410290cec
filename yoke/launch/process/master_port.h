// yoke/launch/process/master_port.h -- the port of the ranks' TCPStore, reserved before the ranks start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "yoke/base/file.h"

namespace yoke::launch {

/// A socket that is bound and does not listen. As long as it is open, no other program can bind the port.
struct MasterPort {
  UniqueFd socket;  ///< Close-on-exec, above the three standard streams.
  uint16_t port = 0;
};

/// Lets other sockets with SO_REUSEADDR bind the port too, until one of them listens. A rank that serves the store
/// needs this: if it is a yoke program, it inherits the socket and listens on it; any other program binds the port
/// again, because torch's store sets SO_REUSEADDR. The kernel asks for no user then, so a process of another one can be
/// faster. A store of the launcher listens before. Then nobody else can bind the port, and the connections that remain
/// in the kernel when the job has ended do not keep the next job from it.
void share_master_port(int socket);

/// Reserves a port that the user has named among the launchers of this machine (of this network namespace) while the
/// returned descriptor is open, from one attempt of the job to the next. Free ports have no name here, which all users
/// can read. Close-on-exec. Errors  kUnavailable if a different launcher has reserved it.
UniqueFd claim_port(uint16_t port);

/// `address`: a name or IP address of this machine. `wanted`: nullopt for any free port. `or_any`: if the address is
/// not one of this machine, bind the port on all of its addresses. Errors  kUnavailable with the port if it is in use;
/// kNotFound if the address is not one of this machine.
MasterPort take_master_port(const std::string& address, std::optional<uint16_t> wanted, bool or_any = false);

}  // namespace yoke::launch
