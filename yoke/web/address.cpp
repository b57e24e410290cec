#include "yoke/web/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::web {
namespace {

bool is_ip(int family, const std::string& text) {
  in6_addr ignored = {};  // an address of IPv4 is shorter
  return inet_pton(family, text.c_str(), &ignored) == 1;
}

bool is_ip(const std::string& text) { return is_ip(AF_INET, text) || is_ip(AF_INET6, text); }

/// The host and port in "[::1]:80", "host:80", "host" or ":80". Each may be empty.
struct Split {
  std::string host, port;
};

Split split(std::string_view text) {
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == text.npos) return {std::string(text), ""};
    const auto rest = text.substr(end + 1);
    return {std::string(text.substr(1, end - 1)), std::string(rest.starts_with(':') ? rest.substr(1) : rest)};
  }
  const auto colon = text.rfind(':');
  if (colon == text.npos || text.find(':') != colon) return {std::string(text), ""};
  return {std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
}

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 && std::ranges::all_of(text, is_digit) && parse_int(text) <= 65535;
}

/// "::1:80": an IPv6 address, of which the last part would also make sense as a port.
bool is_address_with_port(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == text.npos || text.starts_with('[') || !is_ip(AF_INET6, std::string(text.substr(0, colon)))) return false;
  const auto port = text.substr(colon + 1);
  return !port.empty() && port.find_first_not_of("0123456789") == port.npos;
}

}  // namespace

bool Address::is_loopback() const { return host.starts_with("127.") || host == "::1"; }

std::string Address::to_string() const {
  return host.find(':') == host.npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

Address parse_address(std::string_view text) {
  Address address;
  if (is_address_with_port(text)) {
    const auto colon = text.rfind(':');
    throw Error(ErrorCode::kInvalidArgument,
                "`{}` could mean an address alone or one with a port: give [{}]:{}, or [{}] if there is no port", text,
                text.substr(0, colon), text.substr(colon + 1), text);
  }
  auto [host, port] = split(text);
  if (port.empty() && !host.empty() && host.find_first_not_of("0123456789") == host.npos) std::swap(host, port);
  if (host == "localhost") host = address.host;
  if (!host.empty()) address.host = host;
  const auto number = port.empty() ? address.port : parse_int(port).value_or(-1);
  if (!is_ip(address.host) || number < 0 || number > 65535) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "`{}` is not an address to listen on: give ADDR:PORT with an IP address in numbers, like 127.0.0.1:19477 or "
        "[::1]:19477, or a PORT alone",
        text);
  }
  address.port = static_cast<uint16_t>(number);
  return address;
}

bool is_local_host_header(std::string_view header) {
  const bool has_brackets = header.starts_with('[');
  const auto end = header.find(has_brackets ? ']' : ':');
  if (has_brackets && end == header.npos) return false;
  const auto rest = header.substr(std::min(header.size(), has_brackets ? end + 1 : end));
  if (!rest.empty() && (rest.front() != ':' || !is_port(rest.substr(1)))) return false;
  if (has_brackets) return is_ip(AF_INET6, std::string(header.substr(1, end - 1)));
  auto host = lower_case(header.substr(0, end));
  if (host.ends_with('.')) host.pop_back();  // a name with its root, "localhost."
  return header.empty() || host == "localhost" || is_ip(AF_INET, host);
}

}  // namespace yoke::web
