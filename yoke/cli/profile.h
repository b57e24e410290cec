// yoke/cli/profile.h -- the parts of `yoke profile`, which reads traces or has them recorded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/cli/command.h"
#include "yoke/profile/judge.h"

namespace yoke::cli {

struct ProfileArgs {
  std::vector<std::string> traces;
  std::string job;
  int64_t pid = 0;
  std::optional<int64_t> wait;  ///< nullopt: as many as suit a program that starts, or that runs.
  int64_t steps = 6;
  double timeout_s = 60;
  std::string out;
  bool light = false;
  bool has_shapes = false;  ///< For `yoke plan`.
  bool stop = false;
  bool json = false;
};

/// Reads the traces at `paths`, one at a time, with a line of progress on a terminal, and judges them.
profile::Report judge_traces(const std::vector<std::filesystem::path>& paths, const Context& context);

/// The report as the user wants it, in lines of at most `width` columns.
std::string shown(const profile::Report& report, const ProfileArgs& args, int64_t width);

/// `yoke profile -- CMD`. Returns the exit status of the program.
int profile_program(const ProfileArgs& args, Context& context);
/// `yoke profile --pid`, `--job`.
int profile_running(const ProfileArgs& args, Context& context);

}  // namespace yoke::cli
