#include "yoke/cli/options/color.h"

#include <CLI/App.hpp>

namespace yoke::cli {

void add_color_option(CLI::App& command, ColorMode& mode) {
  const auto take = [&mode](const std::string& text) { mode = parse_color_mode(text).value_or(mode); };
  command
      .add_option_function<std::string>("--color", take,
                                        "When to use colours; auto: if the terminal has them and NO_COLOR is not set")
      ->type_name("auto|always|never")
      ->default_str("auto");
}

}  // namespace yoke::cli
