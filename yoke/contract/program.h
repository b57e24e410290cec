// yoke/contract/program.h -- how a training program ends after a failure.
#pragma once

#include <functional>
#include <string_view>

namespace yoke {

/// Runs `body`. An exception is printed as a line "NAME: message" on standard error and reported to the launcher
/// (error_file.h). Returns the exit status: exit_status() of the error's code for a yoke::Error, exit_status(kInternal)
/// for any other exception, and otherwise 0, or 130 after note_interrupt() in a job of one rank.
///
///     int main() { return yoke::run_program("spirals", [] { train(); }); }
int run_program(std::string_view name, const std::function<void()>& body);

/// Records that the user pressed Ctrl-C. The program may then save its work and return, and still does not end like one
/// that is complete: run_program() returns 128 + SIGINT, as shells say of a program that Ctrl-C killed. With several
/// ranks it returns 0, because a launcher would take another status of one rank for a failure. For handlers of signals,
/// such as that of dist::World.
void note_interrupt() noexcept;

}  // namespace yoke
