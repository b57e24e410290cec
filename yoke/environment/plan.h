// yoke/environment/plan.h -- the commands that make a virtual environment, and advice about their failures. Pure.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/environment/packages.h"

namespace yoke::environment {

/// Whether `word` is a folder rather than a name: it has a slash, or is "." or "..".
bool is_folder(std::string_view word);

/// Errors  kInvalidArgument: `name` cannot be the name of an environment. Names begin with a letter or a digit and have
///         letters, digits, '.', '_' and '-', so that they stay in the folder of all environments.
void check_name(std::string_view name);

struct CreateRequest {
  std::filesystem::path folder;
  std::string python;              ///< A program.
  std::string requirements;        ///< A file; empty: none.
  std::vector<Packages> packages;  ///< Installed before the file.
  std::vector<std::string> names;  ///< What is asked for beside the file; the file decides which build it is.
  bool has_hashes = false;         ///< Those of the file (PipFacts).
};

/// The file in which the versions of CreateRequest::packages are kept after their installation, for the steps after it.
std::filesystem::path constraints_of(const std::filesystem::path& folder);

struct Step {
  enum class Kind { kVenv, kInstall, kCompile };
  Kind kind = Kind::kInstall;
  std::string purpose;  ///< "install torch from https://..."
  std::vector<std::string> argv;
  Indices indices = Indices::kAll;  ///< For pip_environment().
};

/// The commands, in their order: venv, a step for each of CreateRequest::packages, then the file. Each may be repeated
/// after a failure.
std::vector<Step> steps_of(const CreateRequest& request);

/// The python of an environment.
std::filesystem::path python_of(const std::filesystem::path& folder);

/// Checks after the installation that the environment has what was promised.
/// Errors  kFailedPrecondition: it has another version of what was `chosen` after its installation, it lacks a package
///         that was asked for, or it does not fulfil the file of requirements.
void check_kept(const CreateRequest& request, const std::map<std::string, std::string>& chosen, const PipFacts& at_end);

/// What to do after a step has failed; `output` is the end of what it printed. The text is a clause without a full
/// stop.
std::string advice_for(Step::Kind kind, std::string_view output);

/// `environment` as the script bin/activate of the environment leaves it.
Environment activated(Environment environment, const std::filesystem::path& folder);

}  // namespace yoke::environment
