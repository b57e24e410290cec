// yoke/launch/process/master_port.h -- the port where rank 0 will serve the ranks' store, taken before it is announced.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "yoke/base/file.h"

namespace yoke::launch {

/// Bound with SO_REUSEADDR, and not listening. So the kernel gives the port to nobody else who asks for
/// any; rank 0 listens on this very socket if it is a yoke program (it inherits it), and a program that knows nothing
/// of it can bind the port again, since whoever serves torch's store sets SO_REUSEADDR too.
struct MasterPort {
  UniqueFd socket;  ///< Close-on-exec, above the three standard streams.
  uint16_t port = 0;
};

/// Keeps other launchers from the same port of this machine (of this network namespace): since SO_REUSEADDR lets both
/// bind it until a rank 0 listens, their ranks would meet at one store and compute together. Close-on-exec.
/// Errors  kUnavailable: another launcher has it.
UniqueFd claim_port(uint16_t port);

/// `address`: of this machine, a name or a number; `wanted`: unset for any free port; `or_any`: where the address is
/// not this machine's, the port on all that it has. Errors  kUnavailable, naming the port, when it is taken; kNotFound:
/// the address is not this machine's.
MasterPort take_master_port(const std::string& address, std::optional<uint16_t> wanted, bool or_any = false);

}  // namespace yoke::launch
