// yoke/web/address.h -- the address of a server as users write it, and the host names that its clients may use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace yoke::web {

struct Address {
  std::string host = "127.0.0.1";  ///< A numeric IP address.
  uint16_t port = 19477;           ///< 0 means any free port.

  bool is_loopback() const;
  std::string to_string() const;  ///< "127.0.0.1:19477", "[::1]:19477"
};

/// Parses "", "PORT", ":PORT", "ADDR", "ADDR:PORT" or "[ADDR6]:PORT"; "localhost" is 127.0.0.1. Missing parts get their
/// default: without an address, only this machine can connect.
/// Errors  kInvalidArgument if the text has none of these forms.
Address parse_address(std::string_view text);

/// Whether a server on a loopback address may answer a request with this Host header. It accepts IP addresses and
/// localhost in any case, with or without a port and a dot at the end of the name, but no other name. Otherwise a page
/// of a different site, open in a browser here, could point its own name at 127.0.0.1 and read data that is only for
/// users of this machine (DNS rebinding).
bool is_local_host_header(std::string_view host);

}  // namespace yoke::web
