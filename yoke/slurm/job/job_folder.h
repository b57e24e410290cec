// yoke/slurm/job/job_folder.h -- the folder for what yoke keeps about a job (its note and its samples), and such files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include "yoke/base/environment.h"

namespace yoke::slurm {

/// The folder that has a folder for each job: yoke/slurm in $XDG_STATE_HOME or ~/.local/state. nullopt: no home. Pure.
std::optional<std::string> jobs_folder(const Environment& environment);
/// The same for samples: $YOKE_SLURM_SAMPLES, or else jobs_folder(). nullopt also for YOKE_SLURM_SAMPLES=0, which turns
/// sampling off. Pure.
std::optional<std::string> samples_folder(const Environment& environment);

/// The text of a regular file of this user; root reads those of all users. nullopt: there is none, or it is larger.
std::optional<std::string> read_own_file(const std::filesystem::path& file, size_t max_bytes);

/// Why read_own_file() does not read a file, as "/a belongs to bob". Empty if it is a file of this user, or of any user
/// for root.
std::string why_not_own(const std::filesystem::path& file);

}  // namespace yoke::slurm
