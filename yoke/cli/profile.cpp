// `yoke profile`: names the bottleneck of a training from the traces of its ranks, and has these recorded.
#include "yoke/cli/profile.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/progress_line.h"
#include "yoke/cli/help/values.h"
#include "yoke/cli/options/value.h"
#include "yoke/profile/report.h"
#include "yoke/profile/trace_file.h"

namespace yoke::cli {
namespace {

int profile_traces(const ProfileArgs& args, Context& context) {
  std::vector<std::filesystem::path> paths;
  for (const auto& word : args.traces) {
    for (auto& path : profile::find_traces(word)) paths.push_back(std::move(path));
  }
  context.out << shown(judge_traces(paths, context), args, output_width(context));
  return kExitOk;
}

int run_profile(const ProfileArgs& args, Context& context) {
  const int num_ways = (args.traces.empty() ? 0 : 1) + (context.rest.empty() ? 0 : 1) + (args.pid == 0 ? 0 : 1) +
                       (args.job.empty() ? 0 : 1);
  if (num_ways == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "name what to profile: a program, as in `yoke profile -- python train.py`; --pid or --job of one that "
                "runs; or traces, --trace FOLDER; `yoke profile --help` has examples");
  }
  if (num_ways > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "give one of a program, --pid, --job and --trace, since each is profiled "
                "in its own way");
  }
  if (args.stop && context.rest.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "--stop ends a program that `yoke profile -- CMD` has started; `yoke stop` "
                "ends a job");
  }
  if (!args.out.empty() && !args.traces.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "--out keeps traces that are recorded; those of --trace stay where they are");
  }
  if (!args.traces.empty()) return profile_traces(args, context);
  return context.rest.empty() ? profile_running(args, context) : profile_program(args, context);
}

void add_options(CLI::App& cmd, ProfileArgs& args) {
  cmd.add_option("--pid", args.pid, "Record a C++ program on yoke that runs already")
      ->type_name("PID")
      ->check(in_range(1, 4194304));
  cmd.add_option("--job", args.job, "Record all ranks of a job on this host: its number in `yoke jobs`, or its run id")
      ->type_name("JOB");
  cmd.add_option("--trace", args.traces,
                 "Read these traces of PyTorch's profiler, one for each rank, plain or gzipped; or their folder")
      ->type_name("PATH...")
      ->take_all();
  add_number(cmd, "--wait", args.wait, {"N", 0, 1e9},
             "Steps that are left out first (default: 5 of a program that starts, else 0)");
  add_number(cmd, "--steps", args.steps, {"N", 1, 10'000}, "Steps that are recorded");
  cmd.add_flag("--light", args.light,
               "Record steps, loading, optimizers and collectives only, which costs next to nothing (C++)");
  cmd.add_flag("--shapes", args.has_shapes, "Record the shapes of inputs too, for `yoke plan --profile`")
      ->excludes("--light");
  cmd.add_option("--out", args.out, "Keep the traces in this folder, for Perfetto or --trace")->type_name("FOLDER");
  cmd.add_flag("--stop", args.stop, "End the program after the report");
  add_number(cmd, "--timeout", args.timeout_s, {"SECONDS", 1, 86'400},
             "With --pid and --job: how long a step may take");
  cmd.add_flag("--json", args.json, "Print JSON");
}

}  // namespace

std::string shown(const profile::Report& report, const ProfileArgs& args, int64_t width) {
  return args.json ? json_page(profile::to_json(report)) : profile::to_text(report, width);
}

profile::Report judge_traces(const std::vector<std::filesystem::path>& paths, const Context& context) {
  std::vector<profile::RankAccount> accounts;
  ProgressLine progress(context.environment);
  for (const auto& path : paths) {  // one trace at a time is in memory
    const auto show = [&](int64_t num_bytes) {
      std::error_code error;
      const auto size = std::filesystem::file_size(path, error);
      progress.show(fmt::format("{}: {}{}", fit(printable(path.filename().string()), 40), format_bytes(num_bytes),
                                error ? "" : " of " + format_bytes(static_cast<int64_t>(size))));
    };
    accounts.push_back(profile::account_for(profile::read_trace_file(path, show)));
  }
  return profile::judge(std::move(accounts));
}

void add_profile(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<ProfileArgs>();  // CLI11 keeps references to it; the callback owns it
  add_options(cmd, *args);
  add_program(cmd, "PROGRAM", "What to run and record; every word from here on is its own");
  cmd.footer(examples(
      "  yoke profile -- python train.py                  a report after 13 steps; the program goes on\n"
      "  yoke profile --stop -- yoke run -n 4 -- ./train  all ranks; then the program is ended\n"
      "  yoke profile --out traces -- ./train             the traces stay, for https://ui.perfetto.dev\n"
      "  yoke profile --pid 4121                          a C++ program on yoke that runs already\n"
      "  yoke profile --job 4120                          all ranks of a job that runs already\n"
      "  yoke profile --trace log/                        traces that torch.profiler has written\n"
      "  yoke profile --trace log/ --json | jq -r .bottleneck\n"
      "\n"
      "Steps end with the optimizer's step. The report of a program goes to standard error, JSON to standard output "
      "(then the program's output goes to standard error).\n"
      "\n"
      "The exit status is the program's: 128 and the signal's number if a signal ended it, 127 if it is not found; "
      "with --stop it is 0. Without a program, and after an error, it is one of `yoke --help`."));
  cmd.callback([args, &context] { context.exit_code = run_profile(*args, context); });
}

}  // namespace yoke::cli
