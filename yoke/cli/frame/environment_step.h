// yoke/cli/frame/environment_step.h -- runs venv, pip and compilers where the user sees them.
#pragma once

#include <string>

#include "yoke/environment/plan.h"

namespace yoke::cli {

/// Runs a step and passes its output on to standard error, where pip and CMake may show their progress.
/// Errors  kFailedPrecondition: it failed; the message has what its output means. `what` says on which object.
void run_environment_step(const environment::Step& step, const std::string& what);

/// Whether `python` can import `module`.
bool has_module(const std::string& python, const std::string& module);

}  // namespace yoke::cli
