// yoke/launch/process/master_port.h -- the port of the ranks' TCPStore, reserved before the ranks start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "yoke/base/file.h"

namespace yoke::launch {

/// A socket that is bound with SO_REUSEADDR and does not listen. As long as it is open, the kernel does not give the
/// port to a program that asks for any free port. If rank 0 is a yoke program, it inherits this socket and listens on
/// it. Any other program can bind the port again, because torch's store sets SO_REUSEADDR too.
struct MasterPort {
  UniqueFd socket;  ///< Close-on-exec, above the three standard streams.
  uint16_t port = 0;
};

/// Reserves the port among the launchers of this machine (of this network namespace) while the returned descriptor is
/// open. SO_REUSEADDR lets two launchers bind the same port until a rank 0 listens. Without the reservation, the ranks
/// of both jobs could then use one store. Close-on-exec. Errors  kUnavailable if a different launcher has reserved it.
UniqueFd claim_port(uint16_t port);

/// `address`: a name or IP address of this machine. `wanted`: nullopt for any free port. `or_any`: if the address is
/// not one of this machine, bind the port on all of its addresses. Errors  kUnavailable with the port if it is in use;
/// kNotFound if the address is not one of this machine.
MasterPort take_master_port(const std::string& address, std::optional<uint16_t> wanted, bool or_any = false);

}  // namespace yoke::launch
