// yoke/cli/help/values.h -- checks the values of options.
//
// The word for the value in an option's help, "auto|gpu|cpu|N" or "SECONDS", says what may be given. The value is
// checked and completed by this word, and messages name it. An option adds no more than a range.
#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace yoke::cli {

/// "give auto, gpu, cpu or N (did you mean `gpu`?)"; empty if `text` is a possible `value`. Words in capitals are
/// placeholders: N, RANK, PORT and PID stand for whole numbers, SECONDS and PERCENT for numbers, all others for any
/// text. Pure.
std::string complaint_about(std::string_view value, std::string_view text);

/// For CLI::Option::check: accepts numbers from `min` to `max`, and says "give 2 to 1000000 seconds" about others.
CLI::Validator in_range(double min, double max, std::string_view unit = "");

/// Gives every option below `app` the check that follows from the word for its value.
void check_values(CLI::App& app);

}  // namespace yoke::cli
