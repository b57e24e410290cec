// yoke/slurm/words/programs.h -- asks Slurm's own programs (squeue, scontrol, sacct, ...) under a deadline, and finds
// values in what scontrol prints.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/command_output.h"
#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/slurm/words/version.h"

namespace yoke::slurm {

/// A Slurm whose slurmctld does not answer keeps its programs waiting for a minute and longer.
inline constexpr std::chrono::seconds kAnswerTime{15};

/// `environment` without the variables that change what Slurm's programs select and print (SQUEUE_USERS, SACCT_FORMAT,
/// SINFO_PARTITION, ...), with times as seconds since 1970, and with lists of tasks that are not cut short. ask() does
/// this by itself. Pure.
Environment query_environment(Environment environment);

/// Runs a program of Slurm and returns what it printed on standard output. Variables of the user that change its answer
/// have no effect (query_environment()).
/// Errors  kNotFound: Slurm is not installed here. kTimeout: no answer within `limit`; what was asked may still happen.
/// kUnavailable: slurmctld, slurmdbd or munge cannot be reached; the message says which. kFailedPrecondition: anything
/// else, with the program's own words.
std::string ask(const std::vector<std::string>& argv, const Environment& environment,
                std::chrono::milliseconds limit = kAnswerTime);

/// The error for a program of Slurm that failed. Pure. `program` is its name without folders.
Error failure_of(const std::string& program, const CommandOutput& output, std::chrono::milliseconds limit);

/// Asks whether slurmctld answers, which takes milliseconds if it does. Programs that start steps wait much longer for
/// a Slurm that does not answer. Errors  like ask().
void check_controller(const Environment& environment, std::chrono::milliseconds limit = kAnswerTime);

/// Returns the version of the Slurm that is installed here; nullopt if there is none.
std::optional<Version> installed_version(const Environment& environment);

/// The value of `name` in a line of NAME=VALUE words, as of `scontrol show node --oneliner`; empty if it has none.
std::string_view field_of(std::string_view line, std::string_view name);

/// The value of `name` in the lines "NAME   = VALUE" of `scontrol show config`; empty if there is none.
std::string_view setting_of(std::string_view config, std::string_view name);

/// "gpu:a100:4(S:0,2),nvme:1" without what is in parentheses, which may have commas.
std::string without_sockets(std::string_view gres);

}  // namespace yoke::slurm
