// yoke/environment/create.h -- makes a Python environment with the packages that fit this machine.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/process.h"
#include "yoke/base/tell.h"
#include "yoke/environment/packages.h"
#include "yoke/environment/plan.h"

namespace yoke::environment {

struct CreateOptions {
  std::string target;  ///< A name, or a folder that is new or empty.
  std::string python = "python3", requirements = {}, index_url = {};
  std::vector<std::string> with = {};  ///< torch, torchvision, torchaudio, tensorflow.
  std::filesystem::path script;        ///< tools/python/yoke_environment.py
  Environment environment;
  std::function<Drivers()> read_drivers;  ///< Called if a package depends on them.
  Tell tell;                              ///< What is chosen, why, and the steps.
  int copy_to = kNullStream;              ///< A descriptor for what venv and pip print.
};

struct Created {
  std::filesystem::path folder;
  std::string promised;  ///< What it has: ", with torch 2.14.0+cu126", or nothing.
};

/// Makes the environment, or goes on with one that is incomplete. After a signal, says what can be done with it, or
/// removes it if nothing is in it yet.
/// REQUIRES: this process has one thread.
/// Errors  kNotFound: there is no such Python; kFailedPrecondition: the environment exists, a step failed, or it does
/// not have at the end what was promised; those of Options::read_drivers.
Created create_environment(const CreateOptions& options);

/// What create_environment() would do, as far as that is known before there is an environment.
CreateRequest plan_environment(const CreateOptions& options);

}  // namespace yoke::environment
