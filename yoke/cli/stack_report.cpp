#include "yoke/cli/stack_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "yoke/base/environment.h"
#include "yoke/base/text.h"
#include "yoke/cli/job_option.h"

namespace yoke::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kFramesOfPlace = 16;  // deeper ones are the same, or depend on data

std::string_view take_line(std::string_view& text) {
  const auto line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

std::string_view trim(std::string_view text) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(" \t")));
  return text.substr(0, text.find_last_not_of(" \t\r") + 1);
}

std::string base_name(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

/// What follows "#3  0x00007f97226f1df2 "; nullopt: no line of a frame.
std::optional<std::string_view> after_address(std::string_view line) {
  if (!line.starts_with('#')) return std::nullopt;
  line.remove_prefix(std::min(line.size(), line.find(' ')));
  line = trim(line);
  if (!line.starts_with("0x")) return line;
  line.remove_prefix(std::min(line.size(), line.find(' ')));
  return trim(line);
}

void sort_main_first(std::vector<ThreadStack>& threads) {
  std::sort(threads.begin(), threads.end(), [](const auto& a, const auto& b) { return a.tid < b.tid; });
}

/// "pause - /usr/lib/libc.so.6", "- /usr/lib/libstdc++.so.6", "pause"
Frame parse_eu_frame(std::string_view text) {
  const auto dash = text.starts_with("- ") ? 0 : text.rfind(" - ");
  if (dash == text.npos) return {std::string(text), ""};
  return {std::string(trim(text.substr(0, dash))), base_name(trim(text.substr(dash + 2)))};
}

/// "in wait_here (seconds=3) at hang.cpp:3", "main () at hang.cpp:4", "in ?? () from /lib/libstdc++.so.6"
Frame parse_gdb_frame(std::string_view text) {
  if (text.starts_with("in ")) text.remove_prefix(3);
  const auto arguments = std::min(text.size(), text.find(" ("));
  Frame frame{std::string(text.substr(0, arguments)), ""};
  if (frame.function == "??") frame.function.clear();
  for (const std::string_view word : {" at ", " from "}) {
    if (const auto at = text.rfind(word); at != text.npos && at > arguments) {
      frame.where = base_name(trim(text.substr(at + word.size())));
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

/// `Thread 4121 (idle): "MainThread"` without what differs from rank to rank.
std::string_view without_number(std::string_view line) {
  const auto quote = line.find('"');
  return line.starts_with("Thread ") && quote != line.npos ? line.substr(quote) : line;
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

std::string describe(const ThreadStack& thread) {
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

/// Threads at the same place once, in the order of their first.
void add_threads(const std::vector<ThreadStack>& threads, std::string& text) {
  std::vector<std::pair<const ThreadStack*, std::vector<int64_t>>> groups;
  for (const auto& thread : threads) {
    const auto known = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return place_of(*group.first) == place_of(thread) && group.first->name == thread.name;
    });
    if (known == groups.end()) {
      groups.push_back({&thread, {thread.tid}});
    } else {
      known->second.push_back(thread.tid);
    }
  }
  for (const auto& [thread, tids] : groups) {
    text += fmt::format("    {} {} ({}): {}\n", tids.size() == 1 ? "thread" : fmt::format("{} threads", tids.size()),
                        join_ranks(tids), printable(thread->name), describe(*thread));
    add_frames(thread->frames, text);
  }
}

void add_process(const ProcessStack& process, std::string& text) {
  text += fmt::format("  process {}: {}\n", process.pid, printable(process.command));
  for (const auto& note : process.notes) text += fmt::format("    {}\n", printable(note));
  if (!process.python.empty()) text += "    Python\n";
  for (const auto& line : process.python) text += fmt::format("      {}\n", printable(line));
  add_threads(process.threads, text);
  if (!process.kernel_frames.empty()) text += "    kernel\n";
  for (const auto& frame : process.kernel_frames) text += fmt::format("      {}\n", printable(frame));
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json to_json(const ThreadStack& thread) {
  Json json = {{"tid", thread.tid},
               {"name", thread.name},
               {"state", std::string(1, thread.state)},
               {"kernel", text_or_null(thread.kernel)},
               {"syscall", text_or_null(thread.syscall)},
               {"frames", Json::array()}};
  for (const auto& [function, where] : thread.frames) {
    json["frames"].push_back({{"function", text_or_null(function)}, {"where", text_or_null(where)}});
  }
  return json;
}

}  // namespace

std::vector<ThreadStack> parse_eu_stack(std::string_view text) {
  std::vector<ThreadStack> threads;
  while (!text.empty()) {
    const auto line = take_line(text);
    if (line.starts_with("TID ")) {
      threads.push_back({.tid = parse_int(trim(line.substr(4, line.find(':') - 4))).value_or(0)});
    } else if (const auto frame = after_address(line); frame && !threads.empty()) {
      threads.back().frames.push_back(parse_eu_frame(*frame));
    }
  }
  sort_main_first(threads);
  return threads;
}

std::vector<ThreadStack> parse_gdb(std::string_view text, int64_t pid) {
  std::vector<ThreadStack> threads;
  while (!text.empty()) {
    const auto line = take_line(text);
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
      // Before its threads gdb shows where the first one is, once more.
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
  while (!text.empty()) {
    const auto line = take_line(text);
    if (!trim(line).empty() && (!lines.empty() || line.starts_with("Thread"))) lines.emplace_back(line);
  }
  return lines;
}

std::string place_of(const RankStack& rank) {
  std::string place = rank.note;
  for (const auto& process : rank.processes) {
    for (const auto& line : process.python) place += fmt::format("{}\n", without_number(line));
    std::set<std::string> threads;  // how many of a pool are idle, and in which order, says nothing
    for (const auto& thread : process.threads) threads.insert(place_of(thread));
    place += fmt::format("{}\n{}\n", fmt::join(threads, "\n\n"), fmt::join(process.notes, "\n"));
  }
  return place;
}

std::string to_text(const std::vector<RankStack>& ranks) {
  std::map<std::string, std::vector<const RankStack*>> by_place;
  for (const auto& rank : ranks) by_place[place_of(rank)].push_back(&rank);
  std::vector<std::vector<const RankStack*>> groups;
  for (auto& [place, group] : by_place) groups.push_back(std::move(group));
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() > b.size() : a[0]->rank < b[0]->rank;
  });
  std::string text;
  for (const auto& group : groups) {
    std::vector<int64_t> numbers, pids;
    for (const auto* rank : group) {
      numbers.push_back(rank->rank);
      if (!rank->processes.empty()) pids.push_back(rank->processes[0].pid);
    }
    text += fmt::format("{}rank{} {}", text.empty() ? "" : "\n", group.size() == 1 ? "" : "s", join_ranks(numbers));
    if (pids.size() > 1) text += fmt::format(", alike (processes {}); of rank {}", join_ranks(pids), group[0]->rank);
    text += group[0]->note.empty() ? ":\n" : fmt::format(": {}\n", printable(group[0]->note));
    for (const auto& process : group[0]->processes) add_process(process, text);
  }
  return text;
}

Json to_json(const std::vector<RankStack>& ranks) {
  auto json = Json::array();
  for (const auto& rank : ranks) {
    Json one = {{"rank", rank.rank}, {"note", text_or_null(rank.note)}, {"processes", Json::array()}};
    for (const auto& process : rank.processes) {
      Json threads = Json::array();
      for (const auto& thread : process.threads) threads.push_back(to_json(thread));
      one["processes"].push_back({{"pid", process.pid},
                                  {"command", process.command},
                                  {"threads", threads},
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
    return fmt::format("process {} (a debugger?) already looks into it, and there can be one alone", tracer);
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

}  // namespace yoke::cli
