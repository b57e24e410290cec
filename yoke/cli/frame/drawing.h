// yoke/cli/frame/drawing.h -- writes drawings into files.
#pragma once

#include <string>

namespace yoke::cli {

enum class Drawing { kSvg, kPng };

/// Checks that write_drawing() can write `file`. Commands call it before work that takes long.
/// Errors  kFailedPrecondition: the file contains something else, such as a run's metrics, and the name may be
/// mistyped; otherwise as errno says, with the path.
void check_drawing(const std::string& file, Drawing kind);

/// Replaces a regular file atomically, so that no viewer sees a part of a drawing. Writes directly into other files.
/// Errors  those of check_drawing().
void write_drawing(const std::string& file, const std::string& content, Drawing kind);

}  // namespace yoke::cli
