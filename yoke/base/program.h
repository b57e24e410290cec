// yoke/base/program.h -- how a training program ends when something fails.
#pragma once

#include <functional>
#include <string_view>

namespace yoke {

/// Runs `body`. An exception becomes a line "NAME: message" on standard error, a report to the launcher (error_file.h)
/// and the result: the exit status of a yoke::Error's code, or that of an internal error. 0 when nothing was thrown.
///
///     int main() { return yoke::run_program("spirals", [] { train(); }); }
int run_program(std::string_view name, const std::function<void()>& body);

}  // namespace yoke
