// yoke/web/address.h -- where a server listens, as users write it, and which names its clients may call it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace yoke::web {

struct Address {
  std::string host = "127.0.0.1";  ///< An IP address in numbers.
  uint16_t port = 19477;           ///< 0: any free one.

  bool is_loopback() const;
  std::string to_string() const;  ///< "127.0.0.1:19477", "[::1]:19477"
};

/// "", "PORT", ":PORT", "ADDR", "ADDR:PORT", "[ADDR6]:PORT"; "localhost" is 127.0.0.1. What is missing is the default:
/// without an address only this machine can connect.
/// Errors  kInvalidArgument.
Address parse_address(std::string_view text);

/// Whether a server on a loopback address answers a request with this Host header: numbers and localhost, not other
/// names. A page of another site in a browser here can point its own name at 127.0.0.1 and so read what is meant for
/// this machine's users alone (DNS rebinding).
bool is_local_host_header(std::string_view host);

}  // namespace yoke::web
