#include "yoke/program/child_error.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>

namespace yoke::program {
namespace {

TEST(ChildError, PassesCodeAndText) {
  EXPECT_EQ(error_in_child([] {}), "");
  for (const auto code : {ErrorCode::kInvalidArgument, ErrorCode::kTimeout, ErrorCode::kInternal}) {
    const Error sent(code, "device \xff {0} and\na second line");
    const auto bytes = error_in_child([&] { throw sent; });
    try {
      throw_child_error(bytes);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_STREQ(error.what(), sent.what());
    }
  }
}

TEST(ChildError, OtherExceptionsBecomeErrors) {
  const auto internal = as_error(std::runtime_error("out of luck"));
  EXPECT_EQ(internal.code(), ErrorCode::kInternal);
  EXPECT_STREQ(internal.what(), "internal error: out of luck");
  const auto missing = std::make_error_code(std::errc::no_such_file_or_directory);
  const auto file = as_error(std::filesystem::filesystem_error("stat", "/none", missing));
  EXPECT_EQ(file.code(), ErrorCode::kNotFound);
  EXPECT_STREQ(file.what(), "/none: No such file or directory");
  EXPECT_STREQ(as_error(std::filesystem::filesystem_error("cwd", missing)).what(),
               "the working folder: No such file or directory");
}

}  // namespace
}  // namespace yoke::program
