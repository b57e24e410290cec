// yoke/base/error.h -- the exception that yoke throws, and the exit status of each of its codes.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace yoke {

/// Why an operation could not finish. Functions for which absence is a normal result return std::optional instead.
enum class ErrorCode {
  kInvalidArgument,     ///< The arguments are wrong; trying again fails in the same way.
  kNotFound,            ///< A file, program, host or device with this name does not exist.
  kPermissionDenied,    ///< The object exists, but this user may not use it.
  kFailedPrecondition,  ///< Something else must be done first.
  kUnavailable,         ///< The operation may work later: a port is in use, a disk is full, a peer is down.
  kTimeout,             ///< A peer did not answer in time; the message names it.
  kDataLoss,            ///< A file is damaged, truncated or not in the format that it claims.
  kInternal,            ///< A bug in yoke.
};

std::string_view name(ErrorCode code);

/// The exit status of a command that ends with `code`, from sysexits.h if that has a matching one.
int exit_status(ErrorCode code);

/// A message says what failed, on which object, why, and what to do next.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  template <typename... Args>
  Error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args)
      : Error(code, fmt::format(format, std::forward<Args>(args)...)) {}

  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

/// Returns the code for an errno. Headers refer to it by "Errors  as errno says".
ErrorCode code_of_errno(int error_number);

/// An Error for a failed system call: "WHAT: strerror(error_number)".
Error system_error(int error_number, const std::string& what);

}  // namespace yoke
