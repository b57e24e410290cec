// yoke/slurm/job/tell.h -- what the doers of jobs tell a person while they work.
#pragma once

#include <functional>
#include <string>

namespace yoke::slurm {

/// Who says a line.
enum class Voice {
  kYoke,   ///< yoke itself: a command shows its name before the line.
  kSlurm,  ///< A program of Slurm, or the job: the line is shown as it is.
};

/// Is called with each line, without its end, as soon as there is something to say. Results are returned instead.
using Tell = std::function<void(Voice voice, const std::string& line)>;

}  // namespace yoke::slurm
