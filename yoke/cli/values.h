// yoke/cli/values.h -- what may be given to an option, and what to say of something else.
//
// The word for the value in an option's help says it: "auto|gpu|cpu|N", "SECONDS". It is checked by that word,
// completed by it, and named by it in messages. An option adds no more than a range.
#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace yoke::cli {

/// "give auto, gpu, cpu or N (did you mean `gpu`?)"; empty if `text` may be a `value`. Words in capitals are
/// placeholders: N, RANK, PORT and PID are whole numbers, SECONDS and PERCENT numbers, and all others anything. Pure.
std::string complaint_about(std::string_view value, std::string_view text);

/// For CLI::Option::check: a number from `min` to `max`, "give 2 to 1000000 seconds".
CLI::Validator in_range(double min, double max, std::string_view unit = "");

/// Gives every option below `app` the check that its value's word says.
void check_values(CLI::App& app);

}  // namespace yoke::cli
