// `yoke slurm top`: the devices of all nodes of a job on one page.
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <csignal>
#include <iostream>
#include <map>
#include <memory>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/host.h"
#include "yoke/base/hostlist.h"
#include "yoke/base/process.h"
#include "yoke/base/table.h"
#include "yoke/base/terminal.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/options/value.h"
#include "yoke/cli/slurm.h"
#include "yoke/device/source.h"
#include "yoke/slurm/job/device_line.h"
#include "yoke/slurm/job/holding.h"
#include "yoke/slurm/job/query.h"

namespace yoke::cli {
namespace {

struct SlurmTopArgs {
  std::string job;
  double interval_s = 2;
  bool once = false, on_node = false;
};

constexpr std::chrono::seconds kFirstAnswers{20};

/// Runs on each node, below srun: prints lines until the output is closed.
int stream_devices(const SlurmTopArgs& args, const Context& context) {
  const auto node = context.environment.value_or("SLURMD_NODENAME", host_name());
  const auto source = device::make_live_source();
  while (true) {
    std::cout << slurm::to_lines(node, slurm::device_rows(source->sample({}))) << std::flush;
    if (args.once || !std::cout) break;
    poll(nullptr, 0, static_cast<int>(args.interval_s * 1000));
  }
  if (source->has_stuck_worker()) _exit(kExitOk);
  return kExitOk;
}

/// The step beside the job's own: it shares CPUs, memory and devices with them.
std::vector<std::string> top_step(const slurm::Job& job, const SlurmTopArgs& args, const Context& context) {
  std::vector<std::string> argv = {"srun",
                                   fmt::format("--jobid={}", job.number),
                                   "--overlap",
                                   "--quiet",
                                   "--input=none",
                                   fmt::format("--nodes={}", job.num_nodes),
                                   fmt::format("--ntasks={}", job.num_nodes),
                                   "--ntasks-per-node=1",
                                   "--cpus-per-task=1",
                                   "--mem=0",
                                   "--cpu-bind=none",
                                   "--kill-on-bad-exit=0",
                                   context.installation.executable.string(),
                                   "slurm",
                                   "top",
                                   "--on-node",
                                   "--interval",
                                   fmt::format("{}", args.interval_s)};
  if (args.once) argv.emplace_back("--once");
  argv.push_back(fmt::format("{}", job.number));
  return argv;
}

struct TopNode {
  std::vector<slurm::DeviceRow> rows;
  std::optional<Clock::time_point> last;
};

std::string top_page(const slurm::Job& job, const std::map<std::string, TopNode>& nodes,
                     std::chrono::duration<double> silence, int64_t width) {
  Table table{.columns = {{"node"},
                          {"device"},
                          {"busy", Align::kRight},
                          {"memory", Align::kRight},
                          {"power", Align::kRight, 0, 2},
                          {"temp", Align::kRight, 0, 1},
                          {"processes", Align::kRight, 0, 3},
                          {"state"},
                          {"name", Align::kLeft, 8, 4}},
              .rows = {}};
  const auto now = Clock::now();
  int64_t num_shown = 0;
  for (const auto& [name, node] : nodes) {
    num_shown += slurm::num_gpus(node.rows);
    if (!node.last || now - *node.last > silence) {
      const auto since = node.last ? " for " + format_duration(now - *node.last) : std::string();
      table.rows.push_back({name, "-", "-", "-", "-", "-", "-", "no answer" + since, ""});
      if (!node.last) continue;
    }
    auto shown = name;
    for (const auto& row : node.rows) {
      const auto percent = row.utilization_percent ? fmt::format("{} %", *row.utilization_percent) : "-";
      const auto memory =
          row.memory_used_bytes && row.memory_total_bytes
              ? fmt::format("{} / {}", format_bytes(*row.memory_used_bytes), format_bytes(*row.memory_total_bytes))
              : "-";
      table.rows.push_back({shown, row.id, percent, memory,
                            row.power_mw ? fmt::format("{} W", *row.power_mw / 1000) : "-",
                            row.temperature_celsius ? fmt::format("{} C", *row.temperature_celsius) : "-",
                            std::to_string(row.num_processes), row.state, row.name});
      shown.clear();
    }
  }
  const auto whose = slurm::whose_gpus(job.num_gpus, num_shown);
  return fmt::format("job {} ({}) of {}: {}\n{}{}", job.id, printable(job.name), printable(job.user),
                     counted(job.num_nodes, "node"), whose, whose.empty() ? "" : "\n") +
         to_text(table, width);
}

class SlurmTop {
 public:
  SlurmTop(const SlurmTopArgs& args, slurm::Job job, const Context& context)
      : args_(args), job_(std::move(job)), context_(context) {
    for (const auto& host : expand_hostlist(job_.node_list)) nodes_[host];
  }

  int run() {
    auto out = make_pipe(), err = make_pipe();
    child_ = spawn({.argv = top_step(job_, args_, context_),
                    .environment = slurm::without_outer_job(context_.environment).to_strings(),
                    .in = kNullStream,
                    .out = out.write_end.value(),
                    .err = err.write_end.value(),
                    .process_group = 0,
                    .death_signal = SIGTERM});
    if (child_ < 0) throw system_error(errno, "starting srun");
    out.write_end.reset();
    err.write_end.reset();
    const bool is_page = !args_.once && isatty(STDOUT_FILENO) == 1 && has_escape_sequences(context_.environment);
    const auto begin = Clock::now();
    auto draw_at = begin;
    bool is_open = true;
    while (is_open) {
      std::array<pollfd, 2> fds = {pollfd{out.read_end.value(), POLLIN, 0}, pollfd{err.read_end.value(), POLLIN, 0}};
      poll(fds.data(), fds.size(), 200);
      if (fds[0].revents != 0) is_open = read_lines(out.read_end.value());
      if (fds[1].revents != 0) read_errors(err.read_end.value());
      const bool has_all = std::ranges::all_of(nodes_, [](const auto& node) { return node.second.last.has_value(); });
      const bool is_late = Clock::now() - begin > kFirstAnswers;
      if (args_.once && (has_all || is_late)) break;
      if (args_.once || Clock::now() < draw_at || (!has_all && !is_late && !is_page)) continue;
      draw(is_page);
      draw_at = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(args_.interval_s * 1000));
      if (!context_.out) break;
    }
    const int status = end_step(is_open);
    const bool has_any = std::ranges::any_of(nodes_, [](const auto& node) { return node.second.last.has_value(); });
    if (!has_any) {
      const auto lines = lines_of(errors_);
      throw Error(ErrorCode::kUnavailable, "srun could not start a step on the nodes of job {} (status {}): {}",
                  job_.id, status, lines.empty() ? "it says nothing" : printable(lines.back()));
    }
    if (args_.once) draw(false);
    if (!args_.once && !is_open)
      std::cerr << fmt::format("yoke slurm top: job {} has ended, or its step was ended\n", job_.id);
    return kExitOk;
  }

 private:
  bool read_lines(int fd) {
    std::array<char, 1 << 16> buffer;
    const auto count = read(fd, buffer.data(), buffer.size());
    if (count <= 0) return false;
    rest_.append(buffer.data(), static_cast<size_t>(count));
    size_t begin = 0;
    for (auto end = rest_.find('\n'); end != rest_.npos; begin = end + 1, end = rest_.find('\n', begin)) {
      auto sample = lines_.take(std::string_view(rest_).substr(begin, end - begin));
      if (sample && nodes_.contains(sample->node)) nodes_[sample->node] = {std::move(sample->rows), Clock::now()};
    }
    rest_.erase(0, begin);
    if (rest_.size() > buffer.size()) rest_.clear();
    return true;
  }

  void read_errors(int fd) {
    std::array<char, 4096> buffer;
    const auto count = read(fd, buffer.data(), buffer.size());
    if (count > 0 && errors_.size() < (1 << 16)) errors_.append(buffer.data(), static_cast<size_t>(count));
  }

  void draw(bool is_page) {
    const std::chrono::duration<double> silence(std::max(5.0, 3 * args_.interval_s));
    context_.out << (is_page ? "\x1b[H\x1b[2J" : "") << top_page(job_, nodes_, silence, output_width(context_))
                 << (is_page || args_.once ? "" : "\n") << std::flush;
  }

  /// Ends srun, which ends its step. Returns its status.
  int end_step(bool is_running) const {
    int status = 0;
    if (is_running) kill(child_, SIGTERM);
    for (int i = 0; i < 500; ++i) {
      if (waitpid(child_, &status, WNOHANG) != 0) return shell_status(status);
      poll(nullptr, 0, 10);
    }
    kill(child_, SIGKILL);
    waitpid(child_, &status, 0);
    return 128 + SIGKILL;
  }

  const SlurmTopArgs& args_;
  const slurm::Job job_;
  const Context& context_;
  pid_t child_ = -1;
  std::map<std::string, TopNode> nodes_;
  slurm::DeviceLines lines_;
  std::string rest_, errors_;
};

int run_slurm_top(const SlurmTopArgs& args, const Context& context) {
  if (args.on_node) return stream_devices(args, context);
  const auto name = slurm::require_job_name(args.job);
  auto jobs = slurm::known_jobs(name, context.environment);
  if (jobs.empty()) {
    throw Error(ErrorCode::kNotFound, "slurmctld knows no job {}; `yoke slurm ps` lists the jobs that wait or run",
                to_text(name));
  }
  const auto num_known = jobs.size();
  const auto first = jobs.front();
  std::erase_if(jobs, [](const auto& job) { return job.state != "RUNNING"; });
  if (jobs.empty()) {
    const auto why = slurm::explain_reason(first.reason).meaning;
    throw Error(ErrorCode::kFailedPrecondition, "job {} is {}{}, so it has no nodes to watch", to_text(name),
                first.state,
                why.empty() || !first.is_waiting() ? "" : fmt::format(" ({}: {})", printable(first.reason), why));
  }
  if (jobs.size() > 1 || (num_known > 1 && !name.task)) {
    throw Error(ErrorCode::kInvalidArgument, "job {} is an array; name one task, as {}", to_text(name),
                jobs.front().id);
  }
  return SlurmTop(args, jobs.front(), context).run();
}

}  // namespace

void add_slurm_top(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<SlurmTopArgs>();  // CLI11 keeps references to *args; the callback owns it
  cmd.add_option("JOB", args->job, "A running job, as 123, or a task of an array, as 123_4")
      ->type_name("JOB")
      ->required();
  add_number(cmd, "--interval", args->interval_s, {"SECONDS", 1, 3600}, "Time between two samples");
  cmd.add_flag("--once", args->once, "Print one page and end");
  cmd.add_flag("--on-node", args->on_node, "What this command starts on each node: prints lines for programs");
  cmd.footer(
      examples("  yoke slurm top 4121           the devices of all its nodes; Ctrl-C leaves\n"
               "  yoke slurm top --once 4121    one page, for a mail or a log\n"
               "\n"
               "It starts a step of its own beside the job's (srun --overlap), which ends with it. A node that\n"
               "does not answer is shown as such. All nodes must have yoke under the same path.\n"
               "\n"
               "Exit status: 0, also when the job ends; 66 if there is no such job; 69 if it does not run;\n"
               "75 if slurmctld or munge cannot be reached, or no step can be started."));
  cmd.callback([args, &context] { context.exit_code = run_slurm_top(*args, context); });
}

}  // namespace yoke::cli
