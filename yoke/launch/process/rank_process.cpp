#include "yoke/launch/process/rank_process.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "yoke/base/affinity.h"
#include "yoke/base/process.h"
#include "yoke/contract/variables.h"

namespace yoke::launch {
namespace {

/// Of a folder the kernel says EACCES. Called between fork and exec.
int cause_of(int error_number, const std::string& program) {
  struct stat status {};
  const bool is_folder =
      program.find('/') != program.npos && stat(program.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  return error_number == EACCES && is_folder ? EISDIR : error_number;
}

}  // namespace

RankProcess to_rank_process(const RankPlan& plan, const StartOptions& options) {
  RankProcess process{.environment = plan.environment,
                      .inherited_fds = plan.inherited_fds,
                      .cpus = plan.cpus,
                      .memory_nodes = plan.memory_nodes,
                      .process_group = plan.process_group,
                      .file_limit = options.file_limit};
  if (options.master_fd >= 0) {  // inserted first, because the first of two variables with the same name counts
    process.environment.insert(process.environment.begin(),
                               fmt::format("{}={}", variable::kMasterListenFd, options.master_fd));
    process.inherited_fds.push_back(options.master_fd);
  }
  return process;
}

pid_t start_rank(const RankPlan& plan, const StartOptions& options, Guard guard) {
  auto process = to_rank_process(plan, options);
  const auto cpus = to_kernel_mask(process.cpus), nodes = to_kernel_mask(process.memory_nodes);
  const bool has_group = process.process_group != 0;
  return spawn({.argv = plan.argv,
                .environment = std::move(process.environment),
                .in = options.in_fd,
                .out = options.out_fd,
                .err = options.err_fd,
                .inherited_fds = std::move(process.inherited_fds),
                .new_session = !has_group,
                .process_group = has_group ? std::optional(process.process_group) : std::nullopt,
                .death_signal = SIGKILL,
                // Unblocks what the launcher blocked. Signals that were ignored at the launcher's start (nohup) stay
                // ignored.
                .blocked_signals = BlockedSignals::kNone,
                .as_sibling = guard == Guard::kParent,
                .before_exec =
                    [&] {
                      prefer_cpus(cpus);
                      prefer_memory(nodes);
                      setrlimit(RLIMIT_NOFILE, &options.file_limit);
                    },
                .exec_failed =
                    [&](int error_number) {
                      const ExecFailure failure{options.index, cause_of(error_number, plan.argv.front())};
                      [[maybe_unused]] const auto count = write(options.failures, &failure, sizeof failure);
                    }});
}

}  // namespace yoke::launch
