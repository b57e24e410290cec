#include "yoke/base/error.h"

#include <cerrno>
#include <system_error>

namespace yoke {

std::string_view name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid argument";
    case ErrorCode::kNotFound: return "not found";
    case ErrorCode::kPermissionDenied: return "permission denied";
    case ErrorCode::kFailedPrecondition: return "failed precondition";
    case ErrorCode::kUnavailable: return "unavailable";
    case ErrorCode::kTimeout: return "timeout";
    case ErrorCode::kDataLoss: return "data loss";
    case ErrorCode::kInternal: return "internal error";
  }
  return "unknown";
}

int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return 64;     // EX_USAGE
    case ErrorCode::kDataLoss: return 65;            // EX_DATAERR
    case ErrorCode::kNotFound: return 66;            // EX_NOINPUT
    case ErrorCode::kFailedPrecondition: return 69;  // EX_UNAVAILABLE
    case ErrorCode::kInternal: return 70;            // EX_SOFTWARE
    case ErrorCode::kUnavailable: return 75;         // EX_TEMPFAIL
    case ErrorCode::kPermissionDenied: return 77;    // EX_NOPERM
    case ErrorCode::kTimeout: return 124;            // as timeout(1)
  }
  return 70;
}

ErrorCode code_of_errno(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
    case ESRCH: return ErrorCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS: return ErrorCode::kPermissionDenied;
    case EINVAL:
    case ENAMETOOLONG:
    case E2BIG: return ErrorCode::kInvalidArgument;
    case ETIMEDOUT: return ErrorCode::kTimeout;
    default: return ErrorCode::kUnavailable;
  }
}

Error system_error(int error_number, const std::string& what) {
  return Error(code_of_errno(error_number), "{}: {}", what, std::generic_category().message(error_number));
}

}  // namespace yoke
