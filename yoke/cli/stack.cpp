// `yoke stack`: where each rank of a job is, for the hang that everyone has met.
#include <dirent.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/base/signal_name.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/job_option.h"
#include "yoke/cli/stack_report.h"
#include "yoke/cli/stack_tools.h"
#include "yoke/device/process/folder.h"
#include "yoke/device/process/info.h"

namespace yoke::cli {
namespace {

using device::ProcessFolder;
using Json = nlohmann::ordered_json;

struct StackArgs {
  std::string job;
  std::optional<int64_t> rank;
  bool all_threads = false;
  bool json = false;
};

struct Syscall {
  int64_t number;
  std::string_view name;
};
/// In which a process may be found for long.
constexpr Syscall kSyscalls[] = {
    {SYS_futex, "futex"},
    {SYS_read, "read"},
    {SYS_write, "write"},
    {SYS_wait4, "wait4"},
    {SYS_waitid, "waitid"},
    {SYS_ppoll, "ppoll"},
    {SYS_pselect6, "pselect6"},
    {SYS_ioctl, "ioctl"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_recvfrom, "recvfrom"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_sendto, "sendto"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_accept, "accept"},
    {SYS_accept4, "accept4"},
    {SYS_connect, "connect"},
    {SYS_epoll_pwait, "epoll_pwait"},
    {SYS_rt_sigsuspend, "rt_sigsuspend"},
    {SYS_rt_sigtimedwait, "rt_sigtimedwait"},
    {SYS_fsync, "fsync"},
    {SYS_openat, "openat"},
    {SYS_flock, "flock"},
    {SYS_fcntl, "fcntl"},
    {SYS_munmap, "munmap"},
    {SYS_exit_group, "exit_group"},
    {SYS_restart_syscall, "restart_syscall"},
#ifdef SYS_poll  // of older architectures
    {SYS_poll, "poll"},
    {SYS_select, "select"},
    {SYS_epoll_wait, "epoll_wait"},
    {SYS_pause, "pause"},
#endif
};

std::string syscall_name(std::string_view text) {
  const auto word = text.substr(0, text.find_first_of(" \n"));
  const auto number = parse_int(word);
  if (!number || *number < 0) return "";  // "running", or not permitted
  for (const auto& known : kSyscalls) {
    if (known.number == *number) return std::string(known.name);
  }
  return std::string(word);
}

std::string first_line(const std::optional<std::string>& text) {
  return text ? text->substr(0, text->find('\n')) : std::string();
}

std::vector<std::string> entries(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code gone;
  for (auto at = std::filesystem::directory_iterator(folder, gone);
       !gone && at != std::filesystem::directory_iterator(); at.increment(gone)) {
    names.push_back(at->path().filename().native());
  }
  return names;
}

/// What /proc tells of each thread, without stopping it.
std::vector<ThreadStack> look_at_threads(int64_t pid) {
  std::vector<ThreadStack> threads;
  const ProcessFolder folder(pid, "/proc");
  for (const auto& name : entries(fmt::format("/proc/{}/task", pid))) {
    const auto tid = parse_int(name);
    const auto read = [&](const char* file) {
      return folder.read(fmt::format("task/{}/{}", name, file).c_str(), 4096);
    };
    const auto stat = device::parse_process_stat(read("stat").value_or(""));
    if (!tid || !stat) continue;
    ThreadStack thread{.tid = *tid, .name = stat->comm, .state = stat->state, .kernel = first_line(read("wchan"))};
    if (thread.kernel == "0") thread.kernel.clear();
    thread.syscall = syscall_name(read("syscall").value_or(""));
    threads.push_back(std::move(thread));
  }
  std::sort(threads.begin(), threads.end(), [](const auto& a, const auto& b) { return a.tid < b.tid; });
  return threads;
}

bool is_in_kernel(const std::vector<ThreadStack>& threads) {
  return std::any_of(threads.begin(), threads.end(), [](const ThreadStack& thread) { return thread.state == 'D'; });
}

/// A shell, or another wrapper.
bool only_waits_for_a_child(const std::vector<ThreadStack>& threads) {
  static const std::set<std::string> kWaits = {"wait4", "waitid", "rt_sigsuspend"};
  static const std::set<std::string> kPlaces = {"do_wait", "kernel_wait4", "sigsuspend", "do_sigsuspend"};
  return threads.size() == 1 && (kWaits.contains(threads[0].syscall) || kPlaces.contains(threads[0].kernel));
}

using Children = std::multimap<int64_t, int64_t>;

Children all_children() {
  Children children;
  for (const auto& name : entries("/proc")) {
    const auto pid = parse_int(name);
    if (!pid) continue;
    const auto stat = device::parse_process_stat(ProcessFolder(*pid, "/proc").read("stat", 4096).value_or(""));
    if (stat && stat->state != 'Z') children.emplace(stat->parent_pid, *pid);
  }
  return children;
}

ProcessStack look_at_process(int64_t pid) {
  const auto info = device::describe_process(pid);
  return {.pid = pid, .command = info.command.empty() ? info.name : info.command, .threads = look_at_threads(pid)};
}

void look_at_rank(int64_t pid, const Children& children, std::vector<ProcessStack>& processes) {
  processes.push_back(look_at_process(pid));
  auto& process = processes.back();
  const auto [first, last] = children.equal_range(pid);
  if (first == last || !only_waits_for_a_child(process.threads)) return;
  process.threads.clear();
  process.notes.push_back("waits for its child");
  for (auto child = first; child != last; ++child) look_at_rank(child->second, children, processes);
}

std::string fate_of(const launch::JobRank& rank) {
  if (!rank.wait_status) return "is being started";
  if (WIFSIGNALED(*rank.wait_status)) return "was killed by " + signal_name(WTERMSIG(*rank.wait_status));
  return fmt::format("exited with code {}", WEXITSTATUS(*rank.wait_status));
}

/// A launcher may be another user's, or name a process of a host that has the same name: only what it has started is
/// looked into.
bool is_below(int64_t launcher, int64_t pid) {
  constexpr int kMaxDepth = 64;
  for (int i = 0; i < kMaxDepth && pid > 1; ++i) {
    if (pid == launcher) return true;
    const auto stat = device::parse_process_stat(ProcessFolder(pid, "/proc").read("stat", 4096).value_or(""));
    pid = stat ? stat->parent_pid : 0;
  }
  return false;
}

std::vector<RankStack> look_at_ranks(const launch::Job& job, const StackArgs& args) {
  std::vector<RankStack> ranks;
  const auto children = all_children();
  for (const auto& rank : job.ranks) {
    if (args.rank && rank.rank != *args.rank) continue;
    auto& one = ranks.emplace_back(RankStack{.rank = rank.rank});
    if (!rank.is_up()) {
      one.note = fate_of(rank);
    } else if (rank.host != job.host) {
      one.note = fmt::format("process {} on {}: look at it there", rank.pid, rank.host);
    } else if (!is_below(job.pid, rank.pid)) {
      one.note = fmt::format("process {} is none that this launcher has started", rank.pid);
    } else {
      look_at_rank(rank.pid, children, one.processes);
    }
  }
  if (ranks.empty()) throw Error(ErrorCode::kNotFound, "job {} has no rank {}", job.pid, *args.rank);
  return ranks;
}

// ---- Tools ---------------------------------------------------------------------------------------------------------

/// The first that is installed, and what it has to be told.
struct NativeTool {
  std::string path;
  std::vector<std::string> options;
  bool is_eu_stack = false;

  std::vector<std::string> argv(int64_t pid) const {
    std::vector<std::string> words = {path};
    words.insert(words.end(), options.begin(), options.end());
    words.push_back(std::to_string(pid));
    return words;
  }
};

std::optional<NativeTool> find_native_tool(const Environment& environment) {
  if (const auto path = find_program("eu-stack", environment)) return NativeTool{*path, {"-m", "-p"}, true};
  if (const auto path = find_program("gdb", environment)) {
    return NativeTool{*path, {"-nx", "-batch", "-ex", "thread apply all bt", "-p"}};
  }
  if (const auto path = find_program("pstack", environment)) return NativeTool{*path, {}};
  return std::nullopt;
}

bool is_python(int64_t pid) {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid), ignored).filename().native();
  if (program.starts_with("python")) return true;
  return ProcessFolder(pid, "/proc").read("maps", 4 << 20).value_or("").find("/libpython") != std::string::npos;
}

int64_t number_in(const std::optional<std::string>& text, std::string_view key) {
  const auto at = text ? text->find(key) : std::string::npos;
  if (at == std::string::npos) return 0;
  const auto rest = std::string_view(*text).substr(at + key.size());
  const auto begin = rest.find_first_of("0123456789");
  return parse_int(rest.substr(begin, rest.find('\n') - begin)).value_or(0);
}

/// Why `tool` shows nothing of a process.
std::string why_nothing(const ToolRun& run, int64_t pid) {
  const auto name = std::filesystem::path(run.argv[0]).filename().native();
  if (run.timed_out) return fmt::format("{} took too long, and was ended", name);
  std::optional<int64_t> scope;
  try {
    scope = parse_int(first_line(read_file("/proc/sys/kernel/yama/ptrace_scope")));
  } catch (const Error&) {  // a kernel without Yama
  }
  const auto tracer = number_in(ProcessFolder(pid, "/proc").read("status", 1 << 16), "TracerPid:");
  if (const auto reason = explain_refusal(run.text, scope, tracer)) return *reason;
  const auto text = std::string_view(run.text).substr(0, run.text.find_last_not_of(" \n") + 1);
  return fmt::format("{} shows nothing: {}", name, text.substr(text.rfind('\n') + 1));
}

void merge(std::vector<ThreadStack> found, ProcessStack& process) {
  for (auto& thread : found) {
    const auto known = std::find_if(process.threads.begin(), process.threads.end(),
                                    [&](const ThreadStack& other) { return other.tid == thread.tid; });
    if (known != process.threads.end()) known->frames = std::move(thread.frames);
  }
}

/// A tool's end may leave the stop behind with which it began to look.
void let_go_on(const ProcessStack& process) {
  const bool was_stopped = !process.threads.empty() && process.threads[0].state == 'T';
  if (!was_stopped) kill(static_cast<pid_t>(process.pid), SIGCONT);
}

/// Runs a tool on each of `processes` and hands over what it printed.
void run_on(const std::vector<ProcessStack*>& processes, const Environment& environment,
            const std::function<std::vector<std::string>(int64_t pid)>& argv,
            const std::function<void(ProcessStack&, const ToolRun&)>& take) {
  std::vector<ToolRun> runs;
  for (const auto* process : processes) runs.push_back({.argv = argv(process->pid)});
  run_tools(runs, environment);
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].timed_out) let_go_on(*processes[i]);
    take(*processes[i], runs[i]);
  }
}

void add_native_stacks(const std::vector<ProcessStack*>& processes, const Environment& environment) {
  const auto tool = find_native_tool(environment);
  if (!tool) {
    for (auto* process : processes) {
      process->notes.push_back("neither eu-stack nor gdb is here: install the package elfutils (or gdb)");
    }
    return;
  }
  run_on(
      processes, environment, [&](int64_t pid) { return tool->argv(pid); },
      [&](ProcessStack& process, const ToolRun& run) {
        auto threads = tool->is_eu_stack ? parse_eu_stack(run.text) : parse_gdb(run.text, process.pid);
        const bool has_frames =
            std::any_of(threads.begin(), threads.end(), [](const auto& t) { return !t.frames.empty(); });
        if (!has_frames) process.notes.push_back(why_nothing(run, process.pid));
        merge(std::move(threads), process);
      });
}

void add_python_stacks(std::vector<ProcessStack*> processes, const Environment& environment) {
  std::erase_if(processes, [](const ProcessStack* process) { return !is_python(process->pid); });
  const auto py_spy = find_program("py-spy", environment);
  if (!py_spy) {
    for (auto* process : processes) process->notes.push_back("for Python's own stack: pip install py-spy");
    return;
  }
  run_on(
      processes, environment,
      [&](int64_t pid) {
        return std::vector<std::string>{*py_spy, "dump", "--pid", std::to_string(pid)};
      },
      [](ProcessStack& process, const ToolRun& run) {
        process.python = parse_py_spy(run.text);
        if (process.python.empty()) process.notes.push_back(why_nothing(run, process.pid));
      });
}

void add_kernel_stack(ProcessStack& process) {
  if (process.threads.empty() || !process.threads[0].frames.empty()) return;
  const auto text = ProcessFolder(process.pid, "/proc").read("stack", 1 << 16).value_or("");
  for (const auto line : lines_of(text)) {
    process.kernel_frames.emplace_back(
        line.substr(std::min(line.size(), line.find("] ") + 2)));  // "[<0>] do_wait+0x2a/0x50"
  }
}

int run_stack(const StackArgs& args, Context& context) {
  const auto job = open_job(args.job).job;
  auto ranks = look_at_ranks(job, args);
  std::vector<ProcessStack*> processes;
  for (auto& rank : ranks) {
    for (auto& process : rank.processes) {
      if (process.threads.empty()) continue;  // it waits for its child, or has ended
      // A process that waits for a disk cannot be stopped to be looked at, and the tool would wait with it.
      if (is_in_kernel(process.threads)) process.threads = look_at_threads(process.pid);
      if (is_in_kernel(process.threads)) {
        process.notes.push_back(
            "waits in the kernel (state D), where no tool can look: for a disk, a network drive or a driver");
      } else {
        processes.push_back(&process);
      }
    }
  }
  add_native_stacks(processes, context.environment);
  add_python_stacks(processes, context.environment);  // after it: a process has one debugger at a time
  for (auto& rank : ranks) {
    for (auto& process : rank.processes) add_kernel_stack(process);
  }
  if (args.json) {
    const Json json = {{"job", job.pid}, {"host", job.host}, {"ranks", to_json(ranks)}};
    context.out << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  } else {
    context.out << to_text(ranks, args.all_threads ? ShownThreads::kAll : ShownThreads::kMain);
  }
  return kExitOk;
}

}  // namespace

void add_stack(CLI::App& app, Context& context) {
  auto args = std::make_shared<StackArgs>();  // CLI11 binds by reference; the callback keeps it alive
  auto* cmd = app.add_subcommand("stack", "Show where the ranks of a job are: native and Python stacks");
  add_job_option(*cmd, args->job);
  cmd->add_option("--rank", args->rank, "This rank alone")->type_name("RANK");
  cmd->add_flag("--all-threads", args->all_threads, "The stacks of all threads, not of the main ones alone");
  cmd->add_flag("--json", args->json, "Print JSON: every rank, every thread");
  cmd->footer(examples(
      "  yoke stack 4121            of all ranks; those that are at the same place once\n"
      "  yoke stack --rank 7        of the only job, one rank\n"
      "  yoke stack --all-threads   not the main threads alone\n"
      "\n"
      "Native stacks are eu-stack's (package elfutils), gdb's or pstack's, Python's are py-spy's (pip install\n"
      "py-spy): whichever is on PATH. They stop a process for a moment. Without them: what /proc tells."));
  cmd->callback([args, &context] { context.exit_code = run_stack(*args, context); });
}

}  // namespace yoke::cli
