#include "yoke/stack/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "yoke/base/cpu_set.h"
#include "yoke/base/environment.h"
#include "yoke/base/json.h"
#include "yoke/base/text.h"

namespace yoke::stack {
namespace {

constexpr size_t kFramesOfPlace = 16;  // frames further out are the same in all ranks, or depend on data

/// Returns the text after "#3  0x00007f97226f1df2 ", or nullopt if the line does not describe a frame.
std::optional<std::string_view> after_address(std::string_view line) {
  if (!line.starts_with('#')) return std::nullopt;
  line.remove_prefix(std::min(line.size(), line.find(' ')));
  line = trimmed(line);
  if (!line.starts_with("0x")) return line;
  line.remove_prefix(std::min(line.size(), line.find(' ')));
  return trimmed(line);
}

void sort_main_first(std::vector<ThreadStack>& threads) {
  std::ranges::sort(threads, [](const auto& a, const auto& b) { return a.tid < b.tid; });
}

/// Parses "pause - /usr/lib/libc.so.6", "- /usr/lib/libstdc++.so.6" or "pause".
Frame parse_eu_frame(std::string_view text) {
  const auto dash = text.starts_with("- ") ? 0 : text.rfind(" - ");
  if (dash == text.npos) return {std::string(text), ""};
  return {std::string(trimmed(text.substr(0, dash))), std::string(base_name(trimmed(text.substr(dash + 2))))};
}

/// Returns where the arguments begin: the blank before "(x=1)" in "f<void (int)> (x=1)". A frame without debugging
/// information has the types of its parameters in the name, too: "(anonymous namespace)::f(void (*)(int)) ()".
size_t begin_of_arguments(std::string_view text) {
  constexpr std::string_view kBlank = " (";
  int depth = 0;  // of brackets
  for (size_t i = 0; i < text.size(); ++i) {
    const auto rest = text.substr(i);
    if (depth == 0 && rest.starts_with(kBlank) && !rest.starts_with(" (anonymous namespace)")) return i;
    if (text[i] == '<' || text[i] == '(') ++depth;
    const bool closes = text[i] == ')' || (text[i] == '>' && !text.substr(0, i).ends_with('-'));
    if (closes && depth > 0) --depth;
  }
  return std::min(text.size(), text.find(kBlank));  // operator< opens a bracket that nothing closes
}

/// Parses "in wait_here (seconds=3) at hang.cpp:3", "main () at hang.cpp:4" or "in ?? () from /lib/libstdc++.so.6".
Frame parse_gdb_frame(std::string_view text) {
  if (text.starts_with("in ")) text.remove_prefix(3);
  const auto arguments = begin_of_arguments(text);
  Frame frame{std::string(text.substr(0, arguments)), ""};
  if (frame.function == "??") frame.function.clear();
  for (const std::string_view word : {" at ", " from "}) {
    if (const auto at = text.rfind(word); at != text.npos && at > arguments) {
      frame.where = base_name(trimmed(text.substr(at + word.size())));
    }
  }
  return frame;
}

std::string place_of(const ThreadStack& thread) {
  if (thread.frames.empty()) return fmt::format("{} {}", thread.kernel, thread.syscall);
  std::string place;
  for (size_t i = 0; i < std::min(kFramesOfPlace, thread.frames.size()); ++i) {
    const auto& frame = thread.frames[i];
    place += (frame.function.empty() ? frame.where : frame.function) + '\n';
  }
  return place;
}

/// Removes the number and the state from `Thread 4121 (idle): "MainThread"`, because they differ between ranks.
std::string_view without_number(std::string_view line) {
  const auto quote = line.find('"');
  return line.starts_with("Thread ") && quote != line.npos ? line.substr(quote) : line;
}

using PythonThread = std::span<const std::string>;  ///< The heading, then the functions, the innermost one first.

std::vector<PythonThread> python_threads(const std::vector<std::string>& lines) {
  std::vector<PythonThread> threads;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto begin = threads.empty() || lines[i].starts_with("Thread ")
                           ? i
                           : static_cast<size_t>(threads.back().data() - lines.data());
    if (begin != i) threads.pop_back();
    threads.push_back(PythonThread(lines).subspan(begin, i + 1 - begin));
  }
  return threads;
}

/// Returns the index of the main thread. REQUIRES: `threads` is not empty.
size_t main_of(const std::vector<PythonThread>& threads) {
  const auto found = std::ranges::find_if(
      threads, [](const auto& thread) { return thread[0].find("\"MainThread\"") != std::string::npos; });
  return found == threads.end() ? 0 : static_cast<size_t>(found - threads.begin());
}

/// Returns null if the threads are not known.
const ThreadStack* main_thread(const ProcessStack& process) {
  const auto found =
      std::ranges::find_if(process.threads, [&](const ThreadStack& thread) { return thread.tid == process.pid; });
  if (found != process.threads.end()) return &*found;
  return process.threads.empty() ? nullptr : &process.threads.front();
}

std::string_view state_name(char state) {
  switch (state) {
    case 'R': return "running";
    case 'S': return "sleeping";
    case 'D': return "waiting in the kernel, cannot be killed";
    case 'T': return "stopped";
    case 't': return "stopped by a debugger";
    case 'Z': return "ended";
    case 'I': return "idle";
    default: return "state not known";
  }
}

std::string describe_thread(const ThreadStack& thread) {
  std::string text(state_name(thread.state));
  if (!thread.syscall.empty()) text += fmt::format(", system call {}", thread.syscall);
  if (!thread.kernel.empty()) text += fmt::format(", in {}", thread.kernel);
  return text;
}

void add_frames(const std::vector<Frame>& frames, std::string& text) {
  for (size_t i = 0; i < frames.size(); ++i) {
    const auto& [function, where] = frames[i];
    text += fmt::format("      #{:<2} {}{}{}\n", i, function.empty() ? "?" : printable(function),
                        where.empty() ? "" : "  ", printable(where));
  }
}

std::string name_of(const std::vector<int64_t>& tids) {
  return fmt::format("{} {}", tids.size() == 1 ? "thread" : fmt::format("{} threads", tids.size()), to_list(tids));
}

void add_thread(const std::vector<int64_t>& tids, const ThreadStack& thread, std::string& text) {
  text += fmt::format("    {} ({}): {}\n", name_of(tids), printable(thread.name), describe_thread(thread));
  add_frames(thread.frames, text);
}

/// Adds threads. Threads at the same place are shown once, in the order of each group's first thread.
void add_all_threads(const std::vector<ThreadStack>& threads, std::string& text) {
  std::vector<std::pair<const ThreadStack*, std::vector<int64_t>>> groups;
  for (const auto& thread : threads) {
    const auto known = std::ranges::find_if(groups, [&](const auto& group) {
      return place_of(*group.first) == place_of(thread) && group.first->name == thread.name;
    });
    if (known == groups.end()) {
      groups.push_back({&thread, {thread.tid}});
    } else {
      known->second.push_back(thread.tid);
    }
  }
  for (const auto& [thread, tids] : groups) add_thread(tids, *thread, text);
}

/// Returns the purpose of a thread: its outermost function that does not belong to the system, or the library if the
/// function is not known. Empty if neither is known.
std::string purpose_of(const ThreadStack& thread) {
  static const std::set<std::string_view> kSystems = {"clone",    "__clone",      "clone3",
                                                      "__clone3", "start_thread", "execute_native_thread_routine"};
  for (auto frame = thread.frames.rbegin(); frame != thread.frames.rend(); ++frame) {
    const auto& [function, where] = *frame;
    if (function.empty()) {
      if (!where.empty() && !where.starts_with("libc.so") && !where.starts_with("libstdc++.so")) return where;
    } else if (!kSystems.contains(
                   std::string_view(function).substr(0, function.find('@')))) {  // without the symbol's version
      return function;
    }
  }
  return "";
}

/// Adds a line for each kind of thread, with the threads' name and purpose.
void add_kinds(const std::vector<const ThreadStack*>& threads, std::string& text) {
  std::map<std::pair<std::string, std::string>, std::vector<const ThreadStack*>> kinds;
  for (const auto* thread : threads) kinds[{thread->name, purpose_of(*thread)}].push_back(thread);
  for (const auto& [kind, members] : kinds) {
    std::vector<int64_t> tids;
    std::map<std::string, int> states;
    for (const auto* thread : members) {
      tids.push_back(thread->tid);
      ++states[describe_thread(*thread)];
    }
    std::vector<std::string> parts;
    for (const auto& [state, count] : states) {
      parts.push_back(states.size() == 1 ? state : fmt::format("{} {}", count, state));
    }
    const auto& [name, purpose] = kind;
    text += fmt::format("    {} ({}){}: {}\n", name_of(tids), printable(name),
                        purpose.empty() ? "" : " in " + printable(purpose), fmt::join(parts, "; "));
  }
}

void add_threads(const ProcessStack& process, ShownThreads shown, std::string& text) {
  if (shown == ShownThreads::kAll) return add_all_threads(process.threads, text);
  const auto* const main = main_thread(process);
  if (main == nullptr) return;
  add_thread({main->tid}, *main, text);
  std::vector<const ThreadStack*> others;
  for (const auto& thread : process.threads) {
    if (&thread != main) others.push_back(&thread);
  }
  add_kinds(others, text);
}

void add_python(const ProcessStack& process, ShownThreads shown, std::string& text) {
  if (process.python.empty()) return;
  text += "    Python\n";
  const auto threads = python_threads(process.python);
  const auto main = main_of(threads);
  std::map<std::string, int> others;  // the number of threads for each name and place
  for (size_t i = 0; i < threads.size(); ++i) {
    const auto& thread = threads[i];
    if (shown == ShownThreads::kMain && i != main) {
      ++others[fmt::format("{}{}", without_number(thread[0]),
                           thread.size() > 1 ? fmt::format(": {}", trimmed(thread[1])) : "")];
      continue;
    }
    for (const auto& line : thread) text += fmt::format("      {}\n", printable(line));
  }
  for (const auto& [what, count] : others) {
    text += fmt::format("      {} {}\n", count == 1 ? "thread" : fmt::format("{} threads", count), printable(what));
  }
}

void add_process(const ProcessStack& process, ShownThreads shown, std::string& text) {
  text += fmt::format("  process {}: {}\n", process.pid, printable(process.command));
  for (const auto& note : process.notes) text += fmt::format("    {}\n", printable(note));
  add_python(process, shown, text);
  add_threads(process, shown, text);
  if (!process.kernel_frames.empty()) text += "    kernel\n";
  for (const auto& frame : process.kernel_frames) text += fmt::format("      {}\n", printable(frame));
}

Json to_json(const ThreadStack& thread) {
  return {{"tid", thread.tid},
          {"name", thread.name},
          {"state", std::string(1, thread.state)},
          {"kernel", or_null(thread.kernel)},
          {"syscall", or_null(thread.syscall)},
          {"frames", json_list(thread.frames, [](const auto& frame) -> Json {
             return {{"function", or_null(frame.function)}, {"where", or_null(frame.where)}};
           })}};
}

}  // namespace

std::vector<ThreadStack> parse_eu_stack(std::string_view text) {
  std::vector<ThreadStack> threads;
  for (const auto line : lines_of(text)) {
    if (line.starts_with("TID ")) {
      threads.push_back({.tid = parse_int(trimmed(line.substr(4, line.find(':') - 4))).value_or(0)});
    } else if (const auto frame = after_address(line); frame && !threads.empty()) {
      threads.back().frames.push_back(parse_eu_frame(*frame));
    }
  }
  sort_main_first(threads);
  return threads;
}

std::vector<ThreadStack> parse_gdb(std::string_view text, int64_t pid) {
  std::vector<ThreadStack> threads;
  for (const auto line : lines_of(text)) {
    if (line.starts_with("Thread ")) {
      auto tid = pid;
      for (const std::string_view word : {"(LWP ", "(process "}) {
        const auto at = line.find(word);
        if (at == line.npos) continue;
        const auto number = line.substr(at + word.size());
        tid = parse_int(number.substr(0, number.find(')'))).value_or(pid);
      }
      threads.push_back({.tid = tid});
    } else if (const auto frame = after_address(line)) {
      if (threads.empty()) threads.push_back({.tid = pid});
      // gdb shows the innermost frame of the first thread twice: once before the list of threads.
      threads.back().frames.push_back(parse_gdb_frame(*frame));
    }
  }
  if (threads.size() > 1 && threads[0].tid == pid && threads[0].frames.size() == 1) {
    const bool again = std::any_of(threads.begin() + 1, threads.end(), [&](const auto& one) { return one.tid == pid; });
    if (again) threads.erase(threads.begin());
  }
  sort_main_first(threads);
  return threads;
}

std::vector<std::string> parse_py_spy(std::string_view text) {
  std::vector<std::string> lines;
  for (const auto line : lines_of(text)) {
    if (!trimmed(line).empty() && (!lines.empty() || line.starts_with("Thread"))) lines.emplace_back(line);
  }
  return lines;
}

std::string place_of(const RankStack& rank) {
  std::string place = rank.note;
  for (const auto& process : rank.processes) {
    if (!process.python.empty()) {
      const auto threads = python_threads(process.python);
      for (const auto& line : threads[main_of(threads)]) place += fmt::format("{}\n", without_number(line));
    }
    const auto* const thread = main_thread(process);
    if (thread != nullptr && thread->state == 'T')
      place += "stopped\n";  // the other ranks may be waiting for this stopped rank
    place += fmt::format("{}\n{}\n", thread == nullptr ? "" : place_of(*thread), fmt::join(process.notes, "\n"));
  }
  return place;
}

std::string to_text(const std::vector<RankStack>& ranks, ShownThreads shown) {
  std::map<std::string, std::vector<const RankStack*>> by_place;
  for (const auto& rank : ranks) by_place[place_of(rank)].push_back(&rank);
  std::vector<std::vector<const RankStack*>> groups;
  for (auto& [place, group] : by_place) groups.push_back(std::move(group));
  std::ranges::sort(groups, [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() > b.size() : a[0]->rank < b[0]->rank;
  });
  std::string text;
  for (const auto& group : groups) {
    std::vector<int64_t> numbers, pids;
    for (const auto* rank : group) {
      numbers.push_back(rank->rank);
      if (!rank->processes.empty()) pids.push_back(rank->processes[0].pid);
    }
    text += fmt::format("{}rank{} {}", text.empty() ? "" : "\n", group.size() == 1 ? "" : "s", to_list(numbers));
    if (pids.size() > 1) text += fmt::format(", alike (processes {}); of rank {}", to_list(pids), group[0]->rank);
    text += group[0]->note.empty() ? ":\n" : fmt::format(": {}\n", printable(group[0]->note));
    for (const auto& process : group[0]->processes) add_process(process, shown, text);
  }
  return text;
}

Json to_json(const std::vector<RankStack>& ranks) {
  auto json = Json::array();
  for (const auto& rank : ranks) {
    Json one = {{"rank", rank.rank}, {"note", or_null(rank.note)}, {"processes", Json::array()}};
    for (const auto& process : rank.processes) {
      one["processes"].push_back(
          {{"pid", process.pid},
           {"command", process.command},
           {"threads", json_list(process.threads, [](const auto& thread) { return to_json(thread); })},
           {"python", process.python},
           {"kernel_frames", process.kernel_frames},
           {"notes", process.notes}});
    }
    json.push_back(std::move(one));
  }
  return json;
}

std::optional<std::string> explain_refusal(std::string_view output, std::optional<int64_t> ptrace_scope,
                                           int64_t tracer) {
  const auto says = [&](std::string_view text) { return output.find(text) != output.npos; };
  if (!says("not permitted") && !says("ermission denied")) return std::nullopt;
  if (tracer > 0)
    return fmt::format("process {} (a debugger?) already looks into it, and a process can have only one tracer",
                       tracer);
  if (ptrace_scope.value_or(0) == 3)
    return "this machine lets nobody look into processes (Yama, kernel.yama.ptrace_scope is 3)";
  if (ptrace_scope.value_or(0) > 0) {
    return fmt::format(
        "this machine lets {} look into a process (Yama, kernel.yama.ptrace_scope is {}): run `yoke stack` as "
        "root, or `sysctl kernel.yama.ptrace_scope=0`",
        *ptrace_scope == 1 ? "only its parents" : "only root", *ptrace_scope);
  }
  return "it may not be looked into: run `yoke stack` as root; a container needs `--cap-add SYS_PTRACE`";
}

}  // namespace yoke::stack
