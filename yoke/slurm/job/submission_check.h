// yoke/slurm/job/submission_check.h -- finds what sbatch would take, but what makes the job fail without a word, or
// what sbatch would refuse without saying why.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "yoke/base/environment.h"
#include "yoke/slurm/script/plan.h"
#include "yoke/slurm/words/version.h"

namespace yoke::slurm {

/// The value of an option in the script: "slurm-%j.out" for "--output". Empty if it is not there. Pure.
std::string directive_of(const ScriptPlan& plan, std::string_view option);

/// A job whose output cannot be written fails after all the time that it has waited. It is submitted in the working
/// folder. Errors  kInvalidArgument: the outputs of the script are so, as far as it can be seen from here; as errno
/// says.
void check_outputs(const ScriptPlan& plan, const std::optional<Version>& version);

/// Errors  kInvalidArgument: an index of `array` is larger than those of this cluster.
void check_array_size(const std::string& array, const Environment& environment);

}  // namespace yoke::slurm
