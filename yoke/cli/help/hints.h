// yoke/cli/help/hints.h -- guesses which mistake in a `yoke run` command line made its job fail.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::cli {

/// Finds the first word after the program that was probably meant for `yoke run`: a long option of `yoke run`, or "-n"
/// with a number of ranks. As with torchrun and mpirun, words after the program belong to the program.
/// `is_missing("--log-dir")` returns whether `yoke run` has this option but did not get it. Pure.
std::optional<std::string> find_misplaced_option(const std::vector<std::string>& program_and_arguments,
                                                 const std::function<bool(std::string_view)>& is_missing);

struct EndedJob {
  int status = 0;
  bool is_quick = false;  ///< The job ended in its first seconds, as if the program did not accept its arguments.
};
/// Returns a hint about `job`, or nullopt if there is none. Looks into the current folder.
std::optional<std::string> hint_about(const EndedJob& job, const std::vector<std::string>& program_and_arguments,
                                      const std::function<bool(std::string_view)>& is_missing);

}  // namespace yoke::cli
