#include "yoke/cli/color_option.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::cli {

void add_color_option(CLI::App& command, ColorMode& mode) {
  const auto take = [&mode](const std::string& text) {
    const auto parsed = parse_color_mode(text);
    if (!parsed) {
      throw Error(ErrorCode::kInvalidArgument, "--color {}: there are auto, always and never", printable(text));
    }
    mode = *parsed;
  };
  command
      .add_option_function<std::string>("--color", take,
                                        "Colours: auto, on a terminal that has them, unless NO_COLOR is set")
      ->type_name("auto|always|never")
      ->default_str("auto");
}

}  // namespace yoke::cli
