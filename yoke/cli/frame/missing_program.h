// yoke/cli/frame/missing_program.h -- says why a program that belongs to yoke is not there, and what to do.
#pragma once

#include <filesystem>
#include <string>

#include "yoke/cli/command.h"

namespace yoke::cli {

/// Returns a clause for an error about `program`, a file of libexec that needs libtorch. In a build tree it names the
/// command that builds `target`, unless the tree is without libtorch. An installation has all programs of its build, so
/// one without `program` is without libtorch.
std::string why_missing(const Installation& installation, const std::filesystem::path& program,
                        const std::string& target);

}  // namespace yoke::cli
