// yoke/tune/tuner.h -- runs a program with different batch sizes, until it is known which one is the fastest.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/program/private_folder.h"
#include "yoke/program/watched_program.h"
#include "yoke/tune/observation.h"
#include "yoke/tune/program.h"
#include "yoke/tune/report.h"
#include "yoke/tune/search.h"

namespace yoke::tune {

struct TunerOptions {
  std::vector<std::string> argv;
  Environment environment;  ///< Of the program, without its batch size. Its TMPDIR is used here too.
  Handover handover;
  SearchOptions search = {};
  std::optional<int64_t> host_bytes = {};  ///< For all ranks of this host; nullopt: what is available.
  double seconds = 5;                      ///< Each size is measured at most this long.
  double timeout_s = 300;                  ///< A program without a step for so long has failed.
  int64_t soak_steps = 200;                ///< The answer is checked for so many steps; 0: not at all.
  double soak_seconds = 60;                ///< The longest time for these steps.
  int copy_to = kNullStream;               ///< A descriptor to which the program's output is copied.

  /// Called ten times a second with what the program is doing.
  std::function<void(const std::string&)> on_progress = [](const std::string&) {};
  /// Called after each run that counts as a measurement.
  std::function<void(const Measurement&, const SearchOptions&)> on_measured = [](const auto&, const auto&) {};
};

/// REQUIRES: this process has one thread, and no SignalMessages exists.
class Tuner {
 public:
  /// Errors  as errno says: there can be no folder in TMPDIR.
  explicit Tuner(TunerOptions options);

  /// Runs the program until there is an answer. nullopt: a signal ended it. The report refers to measurements().
  std::optional<Report> tune();

  int interruption() const { return interruption_; }  ///< The signal's number.
  const std::vector<Measurement>& measurements() const { return measurements_; }
  const SearchOptions& search() const { return options_.search; }

  /// Why no size works, or why sizes seem to be ignored. REQUIRES: the report does not have an answer to rely on.
  Error no_answer(const Report& report) const;

 private:
  std::vector<std::string> environment_for(const Probe& probe, const std::string& folder) const;
  /// Runs the program until `is_enough`. nullopt: interrupted.
  std::optional<Observation> observe(const Probe& probe, const std::function<bool(const Observation&)>& is_enough);
  Measurement judged(const Probe& probe, const Observation& seen) const;
  bool measure(const Probe& probe);
  bool soak(Report& report);

  TunerOptions options_;
  const int64_t multiple_of_;         // as it was asked for
  program::SignalMessages messages_;  // before the folder, so that a signal cannot end this process without removing it
  program::PrivateFolder folder_;
  std::vector<Measurement> measurements_;
  std::string last_output_;
  int64_t host_available_ = 0;  // when the current run began
  int num_runs_ = 0, interruption_ = 0;
  bool ignores_sigterm_ = false;
};

}  // namespace yoke::tune
