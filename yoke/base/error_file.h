// yoke/base/error_file.h -- how a rank tells its launcher why it failed: torchrun's error.json.
//
// The launcher names a file in TORCHELASTIC_ERROR_FILE; a rank that fails writes it, in C++ or Python; the launcher
// shows the earliest one, for the others mostly fail because of it. Format:
// torch/distributed/elastic/multiprocessing/errors.
#pragma once

#include <chrono>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace yoke {

struct ErrorReport {
  std::string message;                         ///< One line: "RuntimeError: sizes differ".
  std::string traceback;                       ///< Several lines; empty when there is none.
  std::chrono::system_clock::time_point time;  ///< Whole seconds; 1970 where the file does not say it, as torchrun.
  std::string content = {};                    ///< The JSON as it was read, with all that a rank added; may be empty.
};

/// nullopt when there is no such file, or none that can be understood: it is a hint, never worth failing for. The file
/// is a rank's: whatever it has put there, this neither waits nor takes much memory.
std::optional<ErrorReport> read_error_file(const std::filesystem::path& path);

/// The same of a file's content.
std::optional<ErrorReport> parse_error_report(std::string_view text);

/// Replaces `path` as a whole. False when it cannot be written: who is failing already has nobody to tell.
bool write_error_file(const std::filesystem::path& path, const ErrorReport& report) noexcept;

/// Hands a rank's report on to whoever launched the launcher, as torchrun does: replaces the file `path` by the report
/// and the rank's exit code (of one that a signal ended, minus the signal's number; 0: none is known).
/// Errors  as errno says, with the path; kDataLoss when `path` is there and no regular file: it is left as it is.
void hand_on_error_report(const std::filesystem::path& path, const ErrorReport& report, int error_code);

/// Tells the launcher why this rank fails, if it wants to know: for a program that catches its errors itself. The first
/// call counts. `type` is that of the exception: "yoke::Error".
void record_failure(const std::string& type, const std::string& message) noexcept;
void record_failure(const std::exception& error) noexcept;  ///< The same, by its own type.

/// From now on an exception that nobody catches is recorded, before the program ends as it would have.
void record_uncaught_exceptions();

}  // namespace yoke
