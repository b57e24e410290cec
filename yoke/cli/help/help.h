// yoke/cli/help/help.h -- makes `--help` fit the terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace yoke::cli {

/// Breaks `text` into lines of at most `width` columns, and treats line feeds in it as blanks. A word longer than
/// `width` is not broken. Pure.
std::string wrapped(std::string_view text, int64_t width);

/// Wraps the paragraphs of a footer made by examples(), but leaves the examples themselves as they are.
std::string wrapped_footer(const std::string& footer, int64_t width);

/// Sets the width of the help of `app` and of all commands below it, in columns.
void set_help_width(CLI::App& app, int64_t width);

}  // namespace yoke::cli
