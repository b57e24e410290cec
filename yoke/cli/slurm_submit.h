// yoke/cli/slurm_submit.h -- submits scripts, and notes where they and their outputs are, for the time when Slurm has
// forgotten the jobs.
#pragma once

#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "yoke/cli/command.h"

namespace yoke::cli {

/// Holds back SIGINT, SIGTERM and SIGHUP: a user must be told about a job that is submitted. They act at the end.
class HeldSignals {
 public:
  HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  ~HeldSignals();

 private:
  sigset_t before_;
};

/// Submits `script` in the working folder, keeps it there as slurm-JOB.sh, and leaves a note of the job. The note is
/// `note`, which has "name" and "output_pattern", with "job", "cluster", "folder", "script" (null: it is not kept),
/// "output" and "submitted". Prints what sbatch says besides.
/// Errors  those of slurm::submit().
nlohmann::ordered_json submit_with_note(nlohmann::ordered_json note, const std::string& script, const Context& context);

/// The note of a job that this user submitted; nullopt if there is none.
std::optional<nlohmann::ordered_json> note_of(int64_t job, const Environment& environment);
/// The text under `key`; empty if there is none.
std::string note_text(const nlohmann::ordered_json& note, const char* key);

}  // namespace yoke::cli
