// yoke/base/error.h -- the one exception of yoke, and the exit status that each of its codes becomes.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace yoke {

/// Why an operation could not finish. Expected absence is std::optional, and a refusal is a value, never an Error.
enum class ErrorCode {
  kInvalidArgument,     ///< The caller's words are wrong, and stay wrong when repeated.
  kNotFound,            ///< A file, program, host or device that was named is not there.
  kPermissionDenied,    ///< It is there, and this user may not.
  kFailedPrecondition,  ///< It would work in another state: something must be done first.
  kUnavailable,         ///< It may work later: a port is taken, a disk is full, a peer is down.
  kTimeout,             ///< Somebody did not answer in time; the message names who.
  kDataLoss,            ///< A file is torn, truncated or not what it says it is.
  kInternal,            ///< A defect of yoke.
};

std::string_view name(ErrorCode code);

/// The exit status of a command that ends with `code`; sysexits.h where it has a matching one.
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

/// The code that an errno means.
ErrorCode code_of_errno(int error_number);

/// An Error for a failed system call: "WHAT: strerror(error_number)".
Error system_error(int error_number, const std::string& what);

}  // namespace yoke
