// `yoke stack`: print the call stack of each rank of a job, to find out why a job hangs.
#include <fmt/format.h>

#include "yoke/base/json.h"
#include "yoke/cli/command.h"
#include "yoke/cli/options/job.h"
#include "yoke/cli/options/value.h"
#include "yoke/launch/job/job_client.h"
#include "yoke/stack/ranks.h"

namespace yoke::cli {
namespace {

struct StackArgs {
  std::string job;
  std::optional<int64_t> rank;
  bool all_threads = false;
  bool json = false;
};

int run_stack(const StackArgs& args, Context& context) {
  const auto job = launch::open_job(args.job).job;
  const auto ranks = stack::take_stacks(job, args.rank, context.environment);
  if (args.json) {
    const Json json = {{"job", job.pid}, {"host", job.host}, {"ranks", stack::to_json(ranks)}};
    print_json(json, context);
  } else {
    context.out << stack::to_text(ranks, args.all_threads ? stack::ShownThreads::kAll : stack::ShownThreads::kMain);
    if (job.world_size > 0 && !args.rank) {
      context.out << fmt::format(
          "\nthe other {} of the job's {} ranks are on other hosts: `yoke stack` shows them there\n",
          job.world_size - job.num_ranks, job.world_size);
    }
  }
  return kExitOk;
}

}  // namespace

void add_stack(CLI::App& cmd, Context& context) {
  auto& args = add_args<StackArgs>(cmd, context, run_stack);
  add_job_option(cmd, args.job);
  add_value(cmd, "--rank", args.rank, "RANK", "This rank alone");
  cmd.add_flag("--all-threads", args.all_threads, "The stacks of all threads, not of the main ones alone");
  cmd.add_flag("--json", args.json, "Print JSON: every rank, every thread");
  cmd.footer(examples(
      "  yoke stack 4121            of all ranks; those that are at the same place once\n"
      "  yoke stack --rank 7        of the only job, one rank\n"
      "  yoke stack --all-threads   not the main threads alone\n"
      "\n"
      "Native stacks are eu-stack's (package elfutils), gdb's or pstack's, Python's are py-spy's (pip install\n"
      "py-spy): whichever is on PATH. They stop a process for a moment. Without them: what /proc tells."));
}

}  // namespace yoke::cli
