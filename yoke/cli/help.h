// yoke/cli/help.h -- `--help` that fits the terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace yoke::cli {

/// `text` with line feeds in place of the blanks between words, so that no line is wider than `width` columns unless a
/// word is. Line feeds of its own count as blanks. Pure.
std::string wrapped(std::string_view text, int64_t width);

/// A footer as `examples` makes it, with its paragraphs wrapped; the examples stay as they are.
std::string wrapped_footer(const std::string& footer, int64_t width);

/// All help below `app` is `width` columns wide.
void set_help_width(CLI::App& app, int64_t width);

}  // namespace yoke::cli
