// `yoke profile`: names the bottleneck of a training from the traces of its ranks, and has these recorded.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/json_text.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/progress_line.h"
#include "yoke/cli/help/values.h"
#include "yoke/cli/options/job.h"
#include "yoke/cli/options/value.h"
#include "yoke/launch/job/job_client.h"
#include "yoke/profile/compare.h"
#include "yoke/profile/judge.h"
#include "yoke/profile/record.h"
#include "yoke/profile/report.h"
#include "yoke/profile/trace_file.h"

namespace yoke::cli {
namespace {

struct ProfileArgs {
  std::vector<std::string> traces;
  std::vector<std::string> compared;  ///< None or two.
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

/// The report as the user wants it, in lines of at most `width` columns.
std::string shown(const profile::Report& report, const ProfileArgs& args, int64_t width) {
  return args.json ? json_page(profile::to_json(report)) : profile::to_text(report, width);
}

/// Reads the traces at `paths`, one at a time, with a line of progress on a terminal, and judges them.
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

int profile_traces(const ProfileArgs& args, Context& context) {
  std::vector<std::filesystem::path> paths;
  for (const auto& word : args.traces) {
    for (auto& path : profile::find_traces(word)) paths.push_back(std::move(path));
  }
  context.out << shown(judge_traces(paths, context), args, output_width(context));
  return kExitOk;
}

/// One side of a comparison: the report in a file, or of traces.
profile::Report side(const std::string& word, const Context& context) {
  if (auto report = profile::read_report(word)) return std::move(*report);
  return judge_traces(profile::find_traces(word), context);
}

int compare_traces(const ProfileArgs& args, Context& context) {
  const auto a = side(args.compared[0], context), b = side(args.compared[1], context);
  const auto comparison = profile::compare(a, b);
  if (args.json) {
    context.out << json_page(profile::to_json(comparison));
    return kExitOk;
  }
  context.out << profile::to_text(comparison, output_width(context));
  return kExitOk;
}

/// The report on traces that were recorded. Traces that do not stay are reported by their names alone.
profile::Report report_of(const profile::Traces& traces, const ProfileArgs& args, const Context& context) {
  auto report = judge_traces(traces, context);
  if (args.out.empty()) {
    for (auto& rank : report.ranks) rank.path = std::filesystem::path(rank.path).filename().native();
  }
  return report;
}

std::string place_of_traces(const ProfileArgs& args) {
  return args.out.empty() ? "" : fmt::format("The traces are in {}.\n", printable(args.out));
}

profile::RecordOptions record_options(const ProfileArgs& args, const Context& context) {
  return {.environment = with_python_hooks(context.environment, context.installation),
          .out = args.out,
          .wait = args.wait,
          .num_steps = args.steps,
          .detail = args.light        ? ProfileDetail::kAnnotations
                    : args.has_shapes ? ProfileDetail::kShapes
                                      : ProfileDetail::kOperations};
}

/// `yoke profile -- CMD`. Returns the exit status of the program.
int profile_program(const ProfileArgs& args, Context& context) {
  const auto print = [&](const profile::Recorded& recorded) {
    return report_errors(context, [&] {
      if (recorded.failure) throw *recorded.failure;
      const auto report = report_of(recorded.traces, args, context);
      if (args.json) {
        context.out << shown(report, args, 0) << std::flush;
        return kExitOk;
      }
      // The program may have left its last line unfinished.
      std::cerr << "\nyoke profile: " << shown(report, args, output_width(context)) << place_of_traces(args)
                << std::flush;
      return kExitOk;
    });
  };
  return record_program(record_options(args, context), {.argv = context.rest,
                                                        .out = args.json ? STDERR_FILENO : kInheritedStream,
                                                        .stops = args.stop,
                                                        .on_recorded = print});
}

/// The ranks of a job that run on this host. The others cannot be asked, which `note` says.
std::vector<int64_t> local_ranks(const std::string& name, std::string& note) {
  const auto job = launch::open_job(name).job;
  std::vector<int64_t> pids;
  for (const auto& rank : job.ranks) {
    if (rank.host == job.host && rank.is_up()) pids.push_back(rank.pid);
  }
  if (pids.empty()) throw Error(ErrorCode::kFailedPrecondition, "job {} has no rank that runs on this host", job.pid);
  const auto num_others = static_cast<int64_t>(job.ranks.size() - pids.size());
  if (num_others > 0) {
    note = fmt::format("{} ranks of job {} are not asked, because they run on other hosts or have ended", num_others,
                       job.pid);
  }
  return pids;
}

/// `yoke profile --pid`, `--job`.
int profile_running(const ProfileArgs& args, Context& context) {
  std::string note;
  const auto pids = args.pid != 0 ? std::vector<int64_t>{args.pid} : local_ranks(args.job, note);
  if (!note.empty()) std::cerr << "yoke profile: " << note << std::endl;
  ProgressLine progress(context.environment);
  const auto print = [&](const profile::Traces& traces) {
    context.out << shown(report_of(traces, args, context), args, output_width(context));
    if (!args.json) context.out << place_of_traces(args);
    return kExitOk;
  };
  return record_running(
      record_options(args, context),
      {.pids = pids, .timeout_s = args.timeout_s, .on_progress = progress.teller(), .on_recorded = print});
}

int run_profile(const ProfileArgs& args, Context& context) {
  const int num_ways = (args.traces.empty() ? 0 : 1) + (context.rest.empty() ? 0 : 1) + (args.pid == 0 ? 0 : 1) +
                       (args.job.empty() ? 0 : 1) + (args.compared.empty() ? 0 : 1);
  if (num_ways == 0) {
    refuse(
        "name what to profile: a program, as in `yoke profile -- python train.py`; --pid or --job of one that "
        "runs; or traces, --trace FOLDER; `yoke profile --help` has examples");
  }
  if (num_ways > 1) {
    refuse("give one of a program, --pid, --job, --trace and --compare, since each is profiled in its own way");
  }
  if (args.stop && context.rest.empty()) {
    refuse("--stop ends a program that `yoke profile -- CMD` has started; `yoke stop` ends a job");
  }
  if (!args.out.empty() && !(args.traces.empty() && args.compared.empty())) {
    refuse("--out keeps traces that are recorded; those of --trace and --compare stay where they are");
  }
  if (!args.compared.empty() && args.compared.size() != 2) {
    refuse("--compare takes two, A and B, and {} given; several traces of one training go into a folder",
           args.compared.size() == 1 ? "one is" : fmt::format("{} are", args.compared.size()));
  }
  if (!args.compared.empty()) return compare_traces(args, context);
  if (!args.traces.empty()) return profile_traces(args, context);
  return context.rest.empty() ? profile_running(args, context) : profile_program(args, context);
}

void add_options(CLI::App& cmd, ProfileArgs& args) {
  add_value(cmd, "--pid", args.pid, "PID", "Record a C++ program on yoke that runs already")
      ->check(in_range(1, 4194304));
  add_value(cmd, "--job", args.job, "JOB",
            "Record all ranks of a job on this host: its number in `yoke jobs`, or its run id");
  add_value(cmd, "--trace", args.traces, "PATH...",
            "Read these traces of PyTorch's profiler, one for each rank, plain or gzipped; or their folder")
      ->take_all();
  add_value(cmd, "--compare", args.compared, "A B",
            "Say by how much B's step differs from A's, and where: of two traces, folders with them, reports of "
            "--json, or folders of a train::Run")
      ->take_all();
  add_number(cmd, "--wait", args.wait, {"N", 0, 1e9},
             "Steps that are left out first (default: 5 of a program that starts, else 0)");
  add_number(cmd, "--steps", args.steps, {"N", 1, 10'000}, "Steps that are recorded");
  cmd.add_flag("--light", args.light,
               "Record steps, loading, optimizers and collectives only, which costs next to nothing (C++)");
  cmd.add_flag("--shapes", args.has_shapes, "Record the shapes of inputs too, for `yoke plan --profile`")
      ->excludes("--light");
  add_value(cmd, "--out", args.out, "FOLDER", "Keep the traces in this folder, for Perfetto or --trace");
  cmd.add_flag("--stop", args.stop, "End the program after the report");
  add_number(cmd, "--timeout", args.timeout_s, {"SECONDS", 1, 86'400},
             "With --pid and --job: how long a step may take");
  cmd.add_flag("--json", args.json, "Print JSON");
}

}  // namespace

void add_profile(CLI::App& cmd, Context& context) {
  auto& args = add_args<ProfileArgs>(cmd, context, run_profile);
  add_options(cmd, args);
  add_program(cmd, "PROGRAM", "What to run and record; every word from here on is its own");
  cmd.footer(examples(
      "  yoke profile -- python train.py                  a report after 13 steps; the program goes on\n"
      "  yoke profile --stop -- yoke run -n 4 -- ./train  all ranks; then the program is ended\n"
      "  yoke profile --out traces -- ./train             the traces stay, for https://ui.perfetto.dev\n"
      "  yoke profile --pid 4121                          a C++ program on yoke that runs already\n"
      "  yoke profile --job 4120                          all ranks of a job that runs already\n"
      "  yoke profile --trace log/                        traces that torch.profiler has written\n"
      "  yoke profile --trace log/ --json | jq -r .bottleneck\n"
      "  yoke profile --compare before/ after/            what has become slower, or faster\n"
      "  yoke profile --compare runs/a runs/b             the same of two runs of train::Run, without traces\n"
      "\n"
      "Steps end with the optimizer's step. The report of a program goes to standard error, JSON to standard output "
      "(then the program's output goes to standard error).\n"
      "\n"
      "The exit status is the program's: 128 and the signal's number if a signal ended it, 127 if it is not found; "
      "with --stop it is 0. Without a program, and after an error, it is one of `yoke --help`."));
}

}  // namespace yoke::cli
