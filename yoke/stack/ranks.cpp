#include "yoke/stack/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "yoke/base/process.h"
#include "yoke/base/sysfs.h"
#include "yoke/device/process/folder.h"
#include "yoke/stack/processes.h"
#include "yoke/stack/tools.h"

namespace yoke::stack {
namespace {

using device::ProcessFolder;

/// The first installed tool, with its options.
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
  if (const auto path = find_tool("eu-stack", environment)) return NativeTool{*path, {"-m", "-p"}, true};
  if (const auto path = find_tool("gdb", environment)) {
    return NativeTool{*path, {"-nx", "-batch", "-ex", "thread apply all bt", "-p"}};
  }
  if (const auto path = find_tool("pstack", environment)) return NativeTool{*path, {}};
  return std::nullopt;
}

bool is_python(int64_t pid) {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid), ignored).filename().native();
  if (program.starts_with("python")) return true;
  return ProcessFolder(pid, "/proc").read("maps", 4 << 20).value_or("").find("/libpython") != std::string::npos;
}

/// Explains why a tool showed nothing about a process.
std::string why_nothing(const ToolRun& run, int64_t pid) {
  const auto name = std::filesystem::path(run.argv[0]).filename().native();
  if (run.timed_out) return fmt::format("{} took too long, and was ended", name);
  const auto scope = read_number("/proc/sys/kernel/yama/ptrace_scope");  // a kernel without Yama lacks this file
  const auto status = parse_properties(ProcessFolder(pid, "/proc").read("status", 1 << 16).value_or(""));
  const auto tracer = status.find("TracerPid");
  const auto reason = explain_refusal(run.text, scope, tracer == status.end() ? 0 : tracer->second);
  if (reason) return *reason;
  const auto text = std::string_view(run.text).substr(0, run.text.find_last_not_of(" \n") + 1);
  return fmt::format("{} shows nothing: {}", name, text.substr(text.rfind('\n') + 1));
}

void merge(std::vector<ThreadStack> found, ProcessStack& process) {
  for (auto& thread : found) {
    const auto known =
        std::ranges::find_if(process.threads, [&](const ThreadStack& other) { return other.tid == thread.tid; });
    if (known != process.threads.end()) known->frames = std::move(thread.frames);
  }
}

/// Continues the process: a tool that was killed may have left it stopped.
void let_go_on(const ProcessStack& process) {
  const bool was_stopped = !process.threads.empty() && process.threads[0].state == 'T';
  if (!was_stopped) kill(static_cast<pid_t>(process.pid), SIGCONT);
}

/// Runs a tool on each of `processes`, and calls `take` with its output.
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
        const bool has_frames = std::ranges::any_of(threads, [](const auto& t) { return !t.frames.empty(); });
        if (!has_frames) process.notes.push_back(why_nothing(run, process.pid));
        merge(std::move(threads), process);
      });
}

void add_python_stacks(std::vector<ProcessStack*> processes, const Environment& environment) {
  std::erase_if(processes, [](const ProcessStack* process) { return !is_python(process->pid); });
  const auto py_spy = find_tool("py-spy", environment);
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

/// Returns the processes that a tool can inspect. The others get a note that says why no tool can.
std::vector<ProcessStack*> find_processes_to_stop(std::vector<RankStack>& ranks) {
  std::vector<ProcessStack*> processes;
  for (auto& rank : ranks) {
    for (auto& process : rank.processes) {
      if (process.threads.empty()) continue;  // the process only waits for its child, or has ended
      // A process that waits for a disk cannot be stopped, and a tool would hang with it.
      if (is_in_kernel(process.threads)) process.threads = look_at_threads(process.pid);
      if (is_in_kernel(process.threads)) {
        process.notes.push_back(
            "waits in the kernel (state D), where no tool can look: for a disk, a network drive or a driver");
      } else {
        processes.push_back(&process);
      }
    }
  }
  return processes;
}

}  // namespace

std::vector<RankStack> take_stacks(const launch::Job& job, std::optional<int64_t> rank,
                                   const Environment& environment) {
  auto ranks = look_at_ranks(job, rank);
  const auto processes = find_processes_to_stop(ranks);
  add_native_stacks(processes, environment);
  add_python_stacks(processes, environment);  // after the native ones: a process has one debugger at a time
  for (auto& one : ranks) {
    for (auto& process : one.processes) add_kernel_stack(process);
  }
  return ranks;
}

}  // namespace yoke::stack
