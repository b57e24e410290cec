// tests/support/message_of.h -- catches the Error that a call throws.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "yoke/base/error.h"

namespace yoke::test {

/// Returns the Error that `body` throws; the test fails if it does not throw one.
template <class Body>
Error error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no Error was thrown";
  return Error(ErrorCode::kInternal, "(nothing thrown)");
}

/// Returns the message of the Error that `body` throws, which must have the code `code`; or else "(nothing thrown)".
template <class Body>
std::string message_of(const Body& body, ErrorCode code = ErrorCode::kInvalidArgument) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "(nothing thrown)";
}

}  // namespace yoke::test
