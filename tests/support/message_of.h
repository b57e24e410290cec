// tests/support/message_of.h -- what a refusal says.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "yoke/base/error.h"

namespace yoke::test {

/// The message of the Error that `body` throws; a failure unless its code is `code`.
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
