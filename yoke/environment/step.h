// yoke/environment/step.h -- runs venv, pip and compilers where the user sees them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/environment/plan.h"

namespace yoke::environment {

/// A Python, and how it is asked.
struct PythonToAsk {
  std::string python;
  std::filesystem::path script;  ///< tools/python/yoke_environment.py
  Environment environment;
};

/// Asks a Python what pip has been told there, and what it has: `words` are those of the script.
/// Errors  kFailedPrecondition: it has no pip, or cannot run.
PipFacts ask_python(const PythonToAsk& asked, std::vector<std::string> words);

/// Runs a step with these variables and passes its output on to the descriptor `copy_to`, where pip and CMake may show
/// their progress. Errors  kFailedPrecondition: it failed; the message has what its output means. `what` says on which
/// object.
void run_step(const Step& step, const std::string& what, const Environment& variables, int copy_to);

}  // namespace yoke::environment
