// yoke/cli/help/values.h -- checks the values of options.
//
// The placeholder in an option's help, such as "auto|gpu|cpu|N" or "SECONDS", defines which values are allowed. Checks,
// completion and messages all use the placeholder. The code of an option adds only a range, if any.
#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace yoke::cli {

/// Says why the placeholder `value` does not allow `text`: "give auto, gpu, cpu or N (did you mean `gpu`?)"; empty if
/// it does. Words in capitals stand for values: N, RANK, PORT and PID for whole numbers, SECONDS and PERCENT for
/// numbers, all others for any text. Pure.
std::string complaint_about(std::string_view value, std::string_view text);

/// For CLI::Option::check: accepts numbers from `min` to `max`, and rejects others: "give 2 to 1000000 seconds".
CLI::Validator in_range(double min, double max, std::string_view unit = "");

/// Adds a check to every option below `app`, according to the option's placeholder.
void check_values(CLI::App& app);

}  // namespace yoke::cli
