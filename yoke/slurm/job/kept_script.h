// yoke/slurm/job/kept_script.h -- batch scripts that are submitted again after Slurm has forgotten their jobs. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/slurm/job/account.h"

namespace yoke::slurm {

/// The value of "#SBATCH --array=VALUE" in a script that `yoke slurm submit` wrote. nullopt: the job was no array.
std::optional<std::string> array_of_script(std::string_view script);

/// Whether the array `value`, such as "0-3,8%2", has the task. True also if the value has a form that is not read here.
bool may_have_task(const std::string& value, int64_t task);

/// The script of the array with that task alone.
std::string script_of_task(std::string_view script, int64_t task);

/// Whether a note of a job that was submitted at `submitted` (seconds since 1970) in `folder` is of the job in the
/// accounts. A newer job may have its number. True if the accounts do not tell.
bool is_note_of(int64_t submitted, std::string_view folder, const std::vector<Account>& accounts);

/// Whether a line of submission names no script, so that sbatch read it from its standard input and it is not known.
bool is_from_standard_input(std::string_view submit_line);

}  // namespace yoke::slurm
