// yoke/cli/frame/environment_step.h -- runs venv, pip and compilers where the user sees them.
#pragma once

#include <string>
#include <vector>

#include "yoke/cli/command.h"
#include "yoke/environment/plan.h"

namespace yoke::cli {

/// Asks a Python what pip has been told there, and what it has: `words` are those of tools/python/yoke_environment.py.
/// Errors  kFailedPrecondition: it has no pip, or cannot run.
environment::PipFacts ask_python(const std::string& python, std::vector<std::string> words, const Context& context);

/// Runs a step with these variables and passes its output on to standard error, where pip and CMake may show their
/// progress. Errors  kFailedPrecondition: it failed; the message has what its output means. `what` says on which
/// object.
void run_environment_step(const environment::Step& step, const std::string& what, const Environment& variables);

}  // namespace yoke::cli
