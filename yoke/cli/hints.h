// yoke/cli/hints.h -- what the user of `yoke run` may have meant, said when a job has failed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::cli {

/// The first word after the program that looks like an option of `yoke run`: a long one, or "-n" with a number of
/// ranks. Such words are the program's, as torchrun and mpirun have it too. `is_missing("--log-dir")`: `yoke run` has
/// this option, and did not get it. Pure.
std::optional<std::string> find_misplaced_option(const std::vector<std::string>& program_and_arguments,
                                                 const std::function<bool(std::string_view)>& is_missing);

/// For a job that ended with `status`. nullopt: nothing comes to mind. Looks into the current folder.
struct EndedJob {
  int status = 0;
  bool is_quick = false;  ///< It failed in its first seconds, as programs do that do not understand their arguments.
};
std::optional<std::string> hint_about(const EndedJob& job, const std::vector<std::string>& program_and_arguments,
                                      const std::function<bool(std::string_view)>& is_missing);

}  // namespace yoke::cli
