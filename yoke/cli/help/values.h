// yoke/cli/help/values.h -- checks the values of options.
//
// The placeholder in an option's help, such as "auto|gpu|cpu|N" or "SECONDS", says which values are allowed. Checks,
// completion and messages use it. The code of an option adds at most a range.
#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace yoke::cli {

/// What is wrong with `text` as a `value`: "give auto, gpu, cpu or N (did you mean `gpu`?)"; empty if it is allowed.
/// Words in capitals are placeholders: N, RANK, PORT and PID stand for whole numbers, SECONDS and PERCENT for numbers,
/// all others for any text. Pure.
std::string complaint_about(std::string_view value, std::string_view text);

/// For CLI::Option::check: accepts numbers from `min` to `max`, and rejects others: "give 2 to 1000000 seconds".
CLI::Validator in_range(double min, double max, std::string_view unit = "");

/// Adds to every option below `app` the check that follows from its placeholder.
void check_values(CLI::App& app);

}  // namespace yoke::cli
