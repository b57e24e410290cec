#include "yoke/base/error_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace yoke {
namespace {

class ErrorFile : public testing::Test {
 protected:
  ~ErrorFile() override { std::filesystem::remove(path_); }
  std::optional<ErrorReport> read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_error_file(path_);
  }
  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("yoke-error-" + std::to_string(getpid()));
};

constexpr std::chrono::system_clock::time_point kTime{std::chrono::seconds(1'790'000'000)};

TEST_F(ErrorFile, IsReadAsItWasWritten) {
  ASSERT_TRUE(write_error_file(path_, {"Error: \"sizes\" differ\xff", "", kTime}));
  const auto report = read_error_file(path_);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->message, "Error: \"sizes\" differ\xEF\xBF\xBD");
  EXPECT_EQ(report->traceback, "");
  EXPECT_EQ(report->time, kTime);
}

// As torch 2.11 writes it.
TEST_F(ErrorFile, PythonsIsUnderstood) {
  const auto report = read(R"({"message": {"message": "ValueError: no", "extraInfo": {"py_callstack":
    "Traceback (most recent call last):\n  File \"a.py\"\nValueError: no\n", "timestamp": "1790000000"}}})");
  ASSERT_TRUE(report);
  EXPECT_EQ(report->message, "ValueError: no");
  EXPECT_EQ(report->traceback.substr(0, 9), "Traceback");
  EXPECT_EQ(report->time, kTime);
  const auto plain = read(R"({"message": "killed by the watchdog", "timestamp": 1790000000})");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->message, "killed by the watchdog");
  EXPECT_EQ(plain->time, kTime);
}

TEST_F(ErrorFile, WhatIsNoneIsNone) {
  EXPECT_FALSE(read_error_file(path_));
  for (const char* text : {"", "{", "[]", "{}", R"({"message": 1})", R"({"message": {"message": "x"}})",
                           R"({"message": {"extraInfo": {"timestamp": []}}})"}) {
    EXPECT_FALSE(read(text)) << text;
  }
  EXPECT_FALSE(write_error_file("/nonexistent/error.json", {}));
}

TEST_F(ErrorFile, AnUncaughtExceptionIsRecorded) {
  const auto die = [&] {
    setenv("TORCHELASTIC_ERROR_FILE", path_.c_str(), 1);
    record_uncaught_exceptions();
    std::thread([] { throw std::out_of_range("no such shard"); }).join();
  };
  EXPECT_EXIT(die(), testing::KilledBySignal(SIGABRT), "");
  const auto report = read_error_file(path_);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->message, "std::out_of_range: no such shard");
}

}  // namespace
}  // namespace yoke
