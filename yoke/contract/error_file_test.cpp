#include "yoke/contract/error_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/contract/shared_failure.h"

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

TEST_F(ErrorFile, NamesTheRanksThatCausedIt) {
  const ErrorReport report{
      .message = "Error: timed out", .time = kTime, .cause = {{3, 5}, "had not come", FailureCause::Kind::kDiffers}};
  ASSERT_TRUE(write_error_file(path_, report));
  EXPECT_EQ(read_error_file(path_)->cause, report.cause);
  for (const char* cause : {"7", "{}", R"({"ranks": 3})", R"({"ranks": ["x"]})", R"({"ranks": {}, "kind": []})"}) {
    const auto other = read(R"({"message": {"message": "x", "extraInfo": {"cause": )" + std::string(cause) + "}}}");
    ASSERT_TRUE(other) << cause;
    EXPECT_EQ(other->cause.ranks.size(), 0U) << cause;
  }
}

TEST_F(ErrorFile, OfAnErrorHasTheCauseThatWasNotedForIt) {
  // record_failure() works once in a process.
  const auto cause_of = [&](const std::string& error) {
    const pid_t pid = fork();
    if (pid == 0) {
      setenv("TORCHELASTIC_ERROR_FILE", path_.c_str(), 1);
      note_failure_cause("rank 3 has not come", {{3}, "had not come"});
      _exit(record_failure("E", error) ? 0 : 1);
    }
    EXPECT_EQ(wait_for_child(pid), 0);
    return read_error_file(path_)->cause.ranks;
  };
  EXPECT_EQ(cause_of("timed out: rank 3 has not come; reported before"), std::vector<int64_t>{3});
  EXPECT_EQ(cause_of("another error"), std::vector<int64_t>{});
}

TEST_F(ErrorFile, OfAnErrorThatAllRanksThrowNamesThoseToBlame) {
  const auto cause_of = [&](const std::string& error) {
    std::filesystem::remove(path_);
    const pid_t pid = fork();
    if (pid == 0) {
      setenv("TORCHELASTIC_ERROR_FILE", path_.c_str(), 1);
      note_shared_failure("not saved: rank 2: no room", {2}, "failed first");
      note_shared_failure("a replica: not saved: rank 2: no room", {0, 1}, "failed together");
      if (error.empty()) std::exit(0);  // the program has caught it, and gone on
      _exit(record_failure("E", error) ? 0 : 1);
    }
    EXPECT_EQ(wait_for_child(pid), 0);
    const auto report = read_error_file(path_);
    return report ? std::optional(report->cause) : std::nullopt;
  };
  const FailureCause known{{2}, "failed first", FailureCause::Kind::kDiffers};
  EXPECT_EQ(cause_of("not saved: rank 2: no room"), known);
  EXPECT_EQ(cause_of("a replica: not saved: rank 2: no room"), known) << "the inner one knows more";
  EXPECT_EQ(cause_of("another"), FailureCause());
  EXPECT_EQ(cause_of(""), std::nullopt);
}

// torchrun shows py_callstack, even an empty one, and the message only if there is none.
TEST_F(ErrorFile, OfAProgramThatHasCaughtItsErrorSaysSo) {
  const auto message_after = [&](int exit_status, bool goes_on) {
    std::filesystem::remove(path_);
    const pid_t pid = fork();
    if (pid == 0) {
      setenv("TORCHELASTIC_ERROR_FILE", path_.c_str(), 1);
      note_failure_cause("rank 3 has not arrived", {{3}, "had not come"});
      if (goes_on) forget_failure_cause();
      std::exit(exit_status);
    }
    waitpid(pid, nullptr, 0);
    const auto report = read_error_file(path_);
    return report ? report->message : "";
  };
  EXPECT_EQ(message_after(0, false), "rank 3 has not arrived");
  EXPECT_EQ(message_after(0, true), "");
  EXPECT_EQ(message_after(1, false), "") << "the status says it";
}

TEST_F(ErrorFile, WithoutATracebackHasNoCallstack) {
  const auto written = [&](const std::string& traceback) {
    EXPECT_TRUE(write_error_file(path_, {"Error: no", traceback, kTime}));
    return read_file(path_);
  };
  EXPECT_EQ(written(""), R"({"message":{"message":"Error: no","extraInfo":{"timestamp":"1790000000"}}})");
  EXPECT_EQ(written("T"),
            R"({"message":{"message":"Error: no","extraInfo":{"py_callstack":"T","timestamp":"1790000000"}}})");
}

// This is what torch 2.11 writes.
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
  for (const char* text :
       {"", "{", "[]", "{}", "7", "\"message\"", R"([{"message": "x"}])", R"({"message": null})", R"({"message": ""})",
        R"({"message": {}})", R"({"message": {"extraInfo": {"timestamp": []}}})", R"({"message": 1e999})",
        R"({"message": "x"} {})", R"({"message": "\ud800"})", "{\"message\": \"\xff\"}",
        "{\"message\": \"\xed\xa0\x80\"}"}) {
    EXPECT_FALSE(read(text)) << text;
  }
  EXPECT_FALSE(write_error_file("/nonexistent/error.json", {}));
}

TEST_F(ErrorFile, WhatOtherProgramsWriteIsUnderstood) {
  struct Case {
    const char* text;
    const char* message;
    int64_t seconds;
  };
  for (const auto& [text, message, seconds] : std::vector<Case>{
           {R"({"message": "just text"})", "just text", 0},  // as in torch: 0 without a timestamp
           {R"({"message": "t", "timestamp": "17"})", "t", 17},
           {R"({"message": "t", "timestamp": 17.9})", "t", 17},
           {R"({"message": "t", "timestamp": "soon"})", "t", 0},
           {R"({"message": "t", "timestamp": -5})", "t", 0},
           {R"({"message": "t", "timestamp": -1e300})", "t", 0},
           {R"({"message": "t", "timestamp": 1e300})", "t", 9'000'000'000},
           {R"({"message": "t", "timestamp": 18446744073709551615})", "t", 9'000'000'000},
           {R"({"message": "t", "timestamp": "9223372036854775807"})", "t", 9'000'000'000},
           {R"({"message": "t", "timestamp": "99999999999999999999"})", "t", 0},
           {R"({"message": "t", "timestamp": {}})", "t", 0},
           {R"({"message": 42})", "42", 0},
           {R"({"message": [1, "a"]})", R"([1,"a"])", 0},
           {R"({"message": true})", "true", 0},
           {R"({"message": {"message": "x"}})", "x", 0},
           {R"({"message": {"message": {"a": [null]}, "extraInfo": {}}})", R"({"a":[null]})", 0},
           {R"({"message": {"message": "x", "extraInfo": 3}})", "x", 0},
           {R"({"message": {"message": "x", "timestamp": 17}})", "x", 17},
           {R"({"message": {"extraInfo": {"py_callstack": "File a\nValueError: no\n\n", "timestamp": 17}}})",
            "ValueError: no", 17},
       }) {
    const auto report = parse_error_report(text);
    ASSERT_TRUE(report) << text;
    EXPECT_EQ(report->message, message) << text;
    EXPECT_EQ(report->time, std::chrono::system_clock::time_point(std::chrono::seconds(seconds))) << text;
    EXPECT_EQ(report->content, text);
  }
}

// nlohmann's parser accepts any depth, but its printer is recursive.
TEST_F(ErrorFile, DepthAndSizeAreLimited) {
  const auto nested = [](size_t depth) {
    return R"({"message": )" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_TRUE(parse_error_report(nested(20)));
  EXPECT_FALSE(parse_error_report(nested(500'000)));
  EXPECT_FALSE(parse_error_report(R"({"message": )" + std::string(500'000, '[')));
  EXPECT_TRUE(read(R"({"message": ")" + std::string(1'000'000, 'x') + "\"}"));
  EXPECT_FALSE(read(R"({"message": ")" + std::string(2'000'000, 'x') + "\"}"));
  std::string keys = R"({"message": "x")";
  for (int i = 0; i < 90'000; ++i) keys += ",\"" + std::to_string(i) + "\":0";
  EXPECT_TRUE(parse_error_report(keys + "}")) << "and in no quadratic time";
}

TEST_F(ErrorFile, OnlyARegularFileIsRead) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(read_error_file(path_));
  std::filesystem::remove(path_);
  for (const char* target : {"/dev/zero", "/proc/self/environ"}) {
    std::filesystem::create_symlink(target, path_);
    EXPECT_FALSE(read_error_file(path_)) << target;
    std::filesystem::remove(path_);
  }
  EXPECT_FALSE(read_error_file("/dev/zero"));
}

TEST_F(ErrorFile, IsHandedOnWithTheExitCode) {
  hand_on_error_report(path_, *parse_error_report(R"({"message": {"message": "x", "more": 1}, "and": 2})"), -11);
  EXPECT_EQ(read_file(path_), R"({"and":2,"message":{"errorCode":-11,"message":"x","more":1}})");
  hand_on_error_report(path_, *parse_error_report(R"({"message": "text"})"), 3);
  EXPECT_EQ(read_file(path_), R"({"message":"text"})") << "as torch: there is no place for it";
  hand_on_error_report(path_, {"no report", "", kTime}, 0);
  EXPECT_EQ(read_error_file(path_)->message, "no report");
  EXPECT_EQ(read_error_file(path_)->time, kTime);
  EXPECT_THROW(hand_on_error_report("/dev/null", {"x", "", kTime}, 0), Error);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
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

// The what() of libtorch's exceptions contains the stack frames of the throw: 1,845 characters in one case.
TEST_F(ErrorFile, FramesOfLibtorchAreATraceback) {
  const auto die = [&] {
    setenv("TORCHELASTIC_ERROR_FILE", path_.c_str(), 1);
    record_failure("c10::Error",
                   "sizes differ\nException raised from check at Tensor.cpp:12 (most recent call first):\nframe #0: f");
    std::_Exit(3);
  };
  EXPECT_EXIT(die(), testing::ExitedWithCode(3), "");
  const auto report = read_error_file(path_);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->message, "c10::Error: sizes differ");
  EXPECT_NE(report->traceback.find("frame #0: f"), std::string::npos);
}

}  // namespace
}  // namespace yoke
