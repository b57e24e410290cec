// yoke/environment/pip.h -- what pip has been told by variables, configuration and files, and what an environment has.
// Pure; tools/python/yoke_environment.py asks.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/environment.h"

namespace yoke::environment {

/// pip's options by their long names, "extra-index-url".
using PipSettings = std::map<std::string, std::string>;

/// A line of a file of requirements or constraints that applies to this Python.
struct Named {
  std::string package;    ///< The canonical name: "torch" for Torch.
  std::string specifier;  ///< "==2.3.1", or empty.
  std::string where;      ///< "-r requirements.txt (line 3)"
  std::string decided;    ///< Why the file alone decides which build it is: "it has a hash"; empty: it does not.
  bool is_constraint = false;
};

/// What tools/python/yoke_environment.py prints.
struct PipFacts {
  PipSettings settings;
  std::vector<Named> named;
  bool has_hashes = false;  ///< pip demands a hash of everything that it installs with these files.
  /// The N for which the files allow PyTorch 2.N and its torchvision; nullopt: they say nothing about it.
  std::optional<std::vector<int>> torch_minors;
  std::map<std::string, std::string> versions;  ///< The installed versions of torch and related packages.
  std::vector<std::string> unmet;               ///< The requirements that the environment does not fulfil.
  std::string unread;                           ///< Why the files could not be read; pip will say it again.
};
/// Errors  kInternal: `json` is something else.
PipFacts parse_pip_facts(std::string_view json);

/// The line that decides alone which build of `package` is installed, or null.
const Named* find_decided(const PipFacts& facts, std::string_view package);

/// The settings that do not count when yoke calls pip, because they decide what is installed or where.
std::vector<std::string> ignored_settings(const PipSettings& settings);

enum class Indices { kAll, kOnlyGiven };

/// The variables for pip: those of the user, with `settings` instead of its configuration files and PIP_*. With
/// kOnlyGiven, for packages that must come from the index on the command line, the user's other indices do not count.
/// Those who install from a folder (no-index) have chosen its content, so it counts.
Environment pip_environment(Environment environment, const PipSettings& settings, Indices indices);

}  // namespace yoke::environment
