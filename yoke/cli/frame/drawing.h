// yoke/cli/frame/drawing.h -- files of drawings that commands write.
#pragma once

#include <string>
#include <string_view>

namespace yoke::cli {

enum class Drawing { kSvg, kPng };

/// Checks that write_drawing() can write `file`, before work that takes long.
/// Errors  kFailedPrecondition: the file has content that is not a drawing of this kind, because a mistyped name must
///         not replace the metrics of a run; as errno says, with the path.
void check_drawing(const std::string& file, Drawing kind);

/// Replaces a regular file as a whole, so that no viewer sees a part of a drawing, and writes into other files.
/// Errors  those of check_drawing().
void write_drawing(const std::string& file, const std::string& content, Drawing kind);

}  // namespace yoke::cli
