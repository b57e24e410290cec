// yoke/container/client.h -- how the client of an engine is started, and how values of variables reach a container
// without being on a command line, which all users of a machine can read. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/container/devices.h"

namespace yoke::container {

struct Client {
  std::vector<std::string> argv;
  Variables variables = {};  ///< Set for the client, beside those of the command.

  /// `environment` with the variables.
  Environment environment(Environment environment) const;

  /// One command line that does the same, to be shown. Leaves out variables that `environment` has already.
  std::vector<std::string> words(const Environment& environment) const;

  /// All of it as bytes, and back, for another process. Words and values may have any bytes except NUL.
  std::string to_bytes() const;
  static Client from_bytes(const std::string& bytes);

  bool operator==(const Client&) const = default;
};

/// `where` names the option in errors.
/// Errors  kInvalidArgument: the name or the value is not UTF-8, so an engine would change it, or has a NUL.
void check_variable(const std::string& where, const std::string& name, const std::string& value);

/// Whether the clients of podman and docker read this variable for themselves.
bool is_read_by_clients(std::string_view name);

}  // namespace yoke::container
