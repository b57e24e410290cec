// `yoke visible`: explain which devices a program started here would see, or start a program with chosen devices.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/shell.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/value.h"
#include "yoke/device/uses.h"
#include "yoke/device/visibility/set.h"
#include "yoke/device/visibility/visibility.h"
#include "yoke/view/devices.h"
#include "yoke/view/visibility.h"

namespace yoke::cli {
namespace {

struct VisibleArgs {
  DeviceOptions device;
  bool json = false;
  bool exports = false;
  std::vector<std::string> chosen;  ///< The words of --set.
  CLI::Option* format_option = nullptr;
  std::string format = "uuid";

  bool is_set() const { return !chosen.empty(); }
  std::string selection() const { return fmt::format("{}", fmt::join(chosen, ",")); }
};

// ---- a different environment ----------------------------------------------------------------------------------------

/// Replaces this process by the program, with `variables` ("NAME=value", each ended by a NUL). If this fails, returns
/// the exit status.
int exec_program(const std::vector<std::string>& words, std::string_view variables) {
  const auto parts = split_terminated(variables, '\0');
  const std::vector<std::string> environment(parts.begin(), parts.end());
  execvpe(words[0].c_str(), exec_pointers(words).data(), exec_pointers(environment).data());
  const int error = errno;
  std::cerr << "yoke visible: " << system_error(error, "cannot start " + words[0]).what() << std::endl;
  constexpr int kNotFound = 127;  // shells and `yoke run` return the same statuses
  constexpr int kCannotRun = 126;
  return error == ENOENT ? kNotFound : kCannotRun;
}

// ---- the command ----------------------------------------------------------------------------------------------------

constexpr device::Want kFactsOnly{.processes = false};

int explain(const VisibleArgs& args, Context& context) {
  return with_source(args.device, context, [&](device::Source& source) {
    const auto snapshot = source.sample(kFactsOnly);
    auto environment = context.environment;
    if (args.is_set()) {
      const auto format = args.format == "index" ? device::IdFormat::kIndex : device::IdFormat::kUuid;
      assign(assignments_for(args.selection(), format, environment, snapshot), environment);
    }
    const auto visibility = device::visibility(environment, snapshot);
    context.out << (args.json ? json_page(view::visibility_json(visibility, snapshot))
                              : view::visibility_text(visibility, snapshot));
    context.out.flush();
    for (const auto& line : view::device_notes(snapshot)) std::cerr << "yoke visible: " << line << '\n';
    return device::find_silent_backend(snapshot) == nullptr ? kExitOk : exit_status(ErrorCode::kUnavailable);
  });
}

/// A child process determines the variables (with_source), so that only the child loads drivers. Then this process
/// becomes the program.
int set(const VisibleArgs& args, Context& context) {
  const auto note = to_descriptor("");  // a file in memory for text of any length; neither process waits for the other
  const int status = with_source(args.device, context, [&](device::Source& source) {
    const auto format = args.format == "index" ? device::IdFormat::kIndex : device::IdFormat::kUuid;
    const auto assignments = assignments_for(args.selection(), format, context.environment, source.sample(kFactsOnly));
    if (args.exports) context.out << to_shell(assignments);
    auto environment = context.environment;
    assign(assignments, environment);
    std::string text;
    for (const auto& variable : environment.to_strings()) text += variable + '\0';
    write_all(note.value(), text, "a file in memory");
    return kExitOk;
  });
  return status != kExitOk || args.exports ? status : exec_program(context.rest, text_of(note));
}

int run_visible(const VisibleArgs& args, Context& context) {
  const bool has_program = !context.rest.empty();
  if (!args.is_set()) {
    if (has_program) refuse("which devices shall the program see? For example `yoke visible --set 0,2 -- ./train`");
    if (args.exports) refuse("--export writes what --set chooses; for example `yoke visible --set 0,2 --export`");
  }
  if (!args.is_set() && args.format_option->count() > 0) refuse("--format is for the devices of --set");
  if (args.exports && has_program) refuse("choose one of --export and a program");
  if (args.json && (args.exports || has_program)) refuse("--json explains, and neither exports nor starts anything");
  return args.exports || has_program ? set(args, context) : explain(args, context);
}

}  // namespace

void add_visible(CLI::App& cmd, Context& context) {
  auto& args = add_args<VisibleArgs>(cmd, context, run_visible);
  add_device_choice(cmd, args.chosen, "--set",
                    "Devices to show: ids as in `yoke devices` (0, 0-3, 1:0 for MIG, UUIDs), all, or none; alone: "
                    "explain what a program would see then",
                    ChoiceForm::kOneWord);
  args.format_option = add_value(cmd, "--format", args.format, "uuid|index",
                                 "Name them by UUID, or by number for programs that read only those")
                           ->capture_default_str();
  cmd.add_flag("--export", args.exports, "Print the variables for a shell's eval instead of starting a program");
  cmd.add_flag("--json", args.json, "Print JSON");
  add_device_options(cmd, args.device);
  add_program(cmd, "PROGRAM", "With --set: what to start, with its arguments; every word from here on is its own");
  cmd.footer(
      examples("  yoke visible                                 what programs started here see, and why\n"
               "  CUDA_VISIBLE_DEVICES=0,9,1 yoke visible      try a value\n"
               "  yoke visible --set 2,0 -- python train.py    a program with devices 2 and 0, in this order\n"
               "  eval \"$(yoke visible --set 1 --export)\"      the same for everything that follows in this shell\n"
               "\n"
               "Exit status: 0, or the program's; 127 if it is not found, 66 if a device is not,\n"
               "75 if a driver does not tell which devices there are."));
}

}  // namespace yoke::cli
