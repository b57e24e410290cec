// yoke/cli/help/help.h -- makes `--help` fit the terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace yoke::cli {

/// `text` broken into lines of at most `width` columns; only a single word that is longer makes a line wider. Line
/// feeds in `text` count as blanks. Pure.
std::string wrapped(std::string_view text, int64_t width);

/// A footer made by examples(), with its paragraphs wrapped. The examples themselves stay as they are.
std::string wrapped_footer(const std::string& footer, int64_t width);

/// Makes the help of `app` and of all its commands `width` columns wide.
void set_help_width(CLI::App& app, int64_t width);

}  // namespace yoke::cli
