// yoke/cli/frame/drawing.h -- writes drawings into files.
#pragma once

#include <string>

namespace yoke::cli {

enum class Drawing { kSvg, kPng };

/// Checks the values of --svg and --png, each empty if it was not given, of a command that prints a table, too.
/// Commands call it before work that takes long.
/// Errors  kFailedPrecondition: a file contains something else, such as a run's metrics, and the name may be mistyped;
/// kInvalidArgument: both are one file, or standard output; otherwise as errno says, with the path.
void check_drawings(const std::string& svg, const std::string& png);

/// Replaces a regular file atomically, so that no viewer sees a part of a drawing. Writes directly into other files.
/// Errors  those of check_drawings().
void write_drawing(const std::string& file, const std::string& content, Drawing kind);

}  // namespace yoke::cli
