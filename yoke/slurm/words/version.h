// yoke/slurm/words/version.h -- the version of a Slurm: 22.05.8 is year 22, month 5, patch 8.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace yoke::slurm {

struct Version {
  int year = 0, month = 0, patch = 0;

  auto operator<=>(const Version&) const = default;
};

/// From this release on, srun takes SLURM_CPUS_PER_TASK and SLURM_TRES_PER_TASK of the job again.
constexpr Version kInheritsCpus{23, 11, 0};

/// Parses "22.05", "22.05.8", "25.05.0-1" or what `sbatch --version` prints, "slurm 22.05.8". Returns nullopt for
/// other texts, and for versions before 20.02, whose names differ.
std::optional<Version> parse_version(std::string_view text);

/// "22.05"
std::string to_text(const Version& version);

}  // namespace yoke::slurm
