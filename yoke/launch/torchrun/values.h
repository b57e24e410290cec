// yoke/launch/torchrun/values.h -- parses parts of option values, and names the variables of options. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::launch {

/// Splits "a,b" into "a" and "b".
std::vector<std::string> split_at_commas(const std::string& text);

/// Errors  kInvalidArgument with the name of the option if `text` is not a number.
int64_t to_number(const std::string& text, const char* option);

/// Returns the variable from which torchrun takes an option's default: "PET_MAX_RESTARTS" for "max-restarts".
std::string variable_of_option(std::string name);

}  // namespace yoke::launch
