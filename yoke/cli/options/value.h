// yoke/cli/options/value.h -- keeps the options of a command, and adds ones with a value and the program that it
// starts.
#pragma once

#include <CLI/App.hpp>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "yoke/cli/command.h"
#include "yoke/cli/help/values.h"

namespace yoke::cli {

/// Makes the options of a command, with which its callback calls `run(args, context)` for the exit status. The callback
/// owns them, because CLI11 keeps references to what it sets.
template <typename Args, typename Run>
Args& add_args(CLI::App& command, Context& context, Run run) {
  const auto args = std::make_shared<Args>();
  command.callback([args, run, &context] { context.exit_code = run(*args, context); });
  return *args;
}

/// Adds an option with a value, which help shows as `type`.
template <typename T>
CLI::Option* add_value(CLI::App& command, const std::string& names, T& target, const std::string& type,
                       const std::string& text) {
  return command.add_option(names, target, text)->type_name(type);
}

/// Adds an option that can be repeated, with a value each time.
template <typename T>
CLI::Option* add_values(CLI::App& command, const std::string& names, std::vector<T>& target, const std::string& type,
                        const std::string& text) {
  return add_value(command, names, target, type, text)->expected(1)->take_all();
}

/// Which numbers an option accepts. Help shows `type`: "N", "SECONDS" or "PERCENT".
struct NumberRange {
  const char* type;
  double min, max;
  const char* unit = "";  ///< For messages; that of SECONDS and PERCENT is known.
};

/// Adds an option with a number. Help shows the number that `target` has before parsing, unless it is an optional.
template <typename T>
CLI::Option* add_number(CLI::App& command, const char* names, T& target, const NumberRange& range,
                        const std::string& text) {
  const std::string type = range.type;
  const auto* unit = type == "SECONDS" ? "seconds" : type == "PERCENT" ? "percent" : range.unit;
  auto* option = add_value(command, names, target, type, text)->check(in_range(range.min, range.max, unit));
  return std::is_arithmetic_v<T> ? option->capture_default_str() : option;
}

/// Adds the positional argument `name`. From it on, all words belong to the program; they are in Context::rest.
inline CLI::Option* add_program(CLI::App& command, const char* name, const std::string& text) {
  const auto ignore = [](const std::vector<std::string>&) {};
  return command.add_option_function<std::vector<std::string>>(name, ignore, text)
      ->type_name(kProgramArguments)
      ->expected(0, -1);
}

}  // namespace yoke::cli
