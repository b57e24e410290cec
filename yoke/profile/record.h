// yoke/profile/record.h -- has the ranks of a program record traces: one that is started here, or programs that run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/contract/profile_protocol.h"

namespace yoke::profile {

struct RecordOptions {
  Environment environment;           ///< Of the program that is started. Its TMPDIR is used here too.
  std::string out = {};              ///< The folder in which traces stay; empty: they are removed at the end.
  std::optional<int64_t> wait = {};  ///< Steps that are left out first; nullopt: as suits the kind of program.
  int64_t num_steps = 6;
  ProfileDetail detail = ProfileDetail::kOperations;
};

/// Of all ranks, in their order. The files exist while `on_recorded` runs; with `out` they stay.
using Traces = std::vector<std::filesystem::path>;

struct Recorded {
  Traces traces;
  std::optional<Error> failure = {};  ///< Why there are no traces.
};

struct ProgramOptions {
  std::vector<std::string> argv;
  int out = kInheritedStream;  ///< The program's standard output.
  bool stops = false;          ///< The program is ended after the recording.
  /// Called once, while the program runs if it has recorded. Returns an exit status.
  std::function<int(const Recorded&)> on_recorded;
};

/// Starts a program in this terminal, and passes signals on to it. Returns its exit status, or that of `on_recorded` if
/// it is 0 or the program was ended; 127 or 126 if the program cannot be run.
/// REQUIRES: this process has one thread, and no SignalMessages exists.
/// Errors  kFailedPrecondition: `out` has traces already; as errno says: `out` cannot be made.
int record_program(const RecordOptions& options, const ProgramOptions& program);

struct RunningOptions {
  std::vector<int64_t> pids;  ///< Each is a C++ program on yoke, or has started one.
  double timeout_s = 60;      ///< How long a step may take.
  /// Called often, and with "" at the end.
  std::function<void(const std::string&)> on_progress = [](const std::string&) {};
  std::function<int(const Traces&)> on_recorded;  ///< Returns an exit status.
};

/// Asks programs of this user that run already. Returns what `on_recorded` does, or 128 plus the number of a signal.
/// REQUIRES: as record_program().
/// Errors  those of record_program(); kNotFound, kPermissionDenied, kInvalidArgument, kFailedPrecondition: a process
/// cannot be asked; kTimeout: no step ended.
int record_running(const RecordOptions& options, const RunningOptions& running);

}  // namespace yoke::profile
