// yoke/base/program.h -- how a training program ends after a failure.
#pragma once

#include <functional>
#include <string_view>

namespace yoke {

/// Runs `body`. An exception is printed as a line "NAME: message" on standard error and reported to the launcher
/// (error_file.h). Returns the exit status: 0 if nothing was thrown, exit_status() of the error's code for a
/// yoke::Error, and exit_status(kInternal) for any other exception.
///
///     int main() { return yoke::run_program("spirals", [] { train(); }); }
int run_program(std::string_view name, const std::function<void()>& body);

}  // namespace yoke
