// yoke/contract/error_file.h -- how a rank tells its launcher why it failed: torchrun's error.json.
//
// The launcher names a file in TORCHELASTIC_ERROR_FILE, and a rank that fails, in C++ or Python, writes it. The
// launcher shows the earliest file, because the first failure usually causes those of the other ranks. The format is
// that of torch/distributed/elastic/multiprocessing/errors.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke {

/// Other ranks that have made this one fail, as far as it knows: those that it has waited for, for instance.
struct FailureCause {
  /// They did not come where others waited for them; they had ended; or they did something else than the others.
  enum class Kind { kAbsent, kEnded, kDiffers };

  std::vector<int64_t> ranks;  ///< Empty: the failure is this rank's own, or the cause is not known.
  std::string what;            ///< What they did, to follow "rank 3": "had not entered collective 57".
  Kind kind = Kind::kAbsent;

  bool operator==(const FailureCause&) const = default;
};

struct ErrorReport {
  std::string message;                         ///< One line: "RuntimeError: sizes differ".
  std::string traceback;                       ///< Several lines; may be empty.
  std::chrono::system_clock::time_point time;  ///< In whole seconds; 1970 if the file has no time, as in torchrun.
  std::string content = {};                    ///< The JSON as read, including what the rank added; may be empty.
  FailureCause cause = {};
};

/// Reads an error file. Returns nullopt if it is missing or cannot be understood, because the report is only a hint.
/// The rank controls the file, so this function never blocks and reads at most 1 MiB, whatever the path leads to.
std::optional<ErrorReport> read_error_file(const std::filesystem::path& path);

/// Parses the content of an error file.
std::optional<ErrorReport> parse_error_report(std::string_view text);

/// Replaces the file `path` atomically. Returns false instead of throwing, because the caller is already failing.
bool write_error_file(const std::filesystem::path& path, const ErrorReport& report) noexcept;

/// Passes a rank's report on to the parent of the launcher, as torchrun does: replaces the file `path` by the report
/// and the rank's exit code. It is minus the number of the signal that ended the rank, or 0 if unknown.
/// Errors  as errno says, with the path; kDataLoss if `path` is not a regular file (it is not changed).
void hand_on_error_report(const std::filesystem::path& path, const ErrorReport& report, int error_code);

/// Writes the report of this rank if the launcher has asked for one. For programs that catch their errors themselves.
/// Only the first call has an effect. `type` is the type of the exception, such as "yoke::Error"; it may be empty.
/// Returns whether the launcher has the report, and will show it.
bool record_failure(const std::string& type, const std::string& message) noexcept;
bool record_failure(const std::exception& error) noexcept;  ///< Records the type and the message of `error`.

/// Says that `cause` has led to an error of this process whose text is `message`. If that error, or one with the text
/// in it, is recorded later, the launcher names those ranks. If the process ends with status 0 instead, its program has
/// caught the error, which is recorded then.
void note_failure_cause(std::string message, FailureCause cause);

/// The program has gone on in spite of the error that was noted last, to the end or to a state from which all ranks go
/// on.
void forget_failure_cause() noexcept;

/// After this call, an uncaught exception is recorded before it ends the program.
void record_uncaught_exceptions();

}  // namespace yoke
