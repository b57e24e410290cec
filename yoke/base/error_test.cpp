#include "yoke/base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

namespace yoke {
namespace {

TEST(Error, CarriesItsCodeAndMessage) {
  const Error error(ErrorCode::kTimeout, "rank {} has not arrived", 3);
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_STREQ(error.what(), "rank 3 has not arrived");
}

TEST(Error, EveryCodeHasItsOwnExitStatus) {
  const auto codes = {ErrorCode::kInvalidArgument,    ErrorCode::kNotFound,    ErrorCode::kPermissionDenied,
                      ErrorCode::kFailedPrecondition, ErrorCode::kUnavailable, ErrorCode::kTimeout,
                      ErrorCode::kDataLoss,           ErrorCode::kInternal};
  std::set<int> statuses;
  for (const auto code : codes) statuses.insert(exit_status(code));
  EXPECT_EQ(statuses.size(), codes.size());
  for (const int status : statuses) {
    EXPECT_GT(status, 2);
    EXPECT_LT(status, 126) << "126 and above mean something to shells";
  }
}

TEST(Error, SystemErrorsSayWhatFailedAndWhy) {
  const Error error = system_error(ENOSPC, "writing /data/a.bin");
  EXPECT_STREQ(error.what(), "writing /data/a.bin: No space left on device");
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  EXPECT_EQ(code_of_errno(ENOENT), ErrorCode::kNotFound);
  EXPECT_EQ(code_of_errno(EACCES), ErrorCode::kPermissionDenied);
}

}  // namespace
}  // namespace yoke
