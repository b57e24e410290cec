// yoke/stack/report.h -- parses debuggers' output about the ranks of a job, and shows it as text and JSON. Pure.
//
// Texts contain bytes as processes and tools wrote them. Only to_text() makes them printable.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::stack {

struct Frame {
  std::string function;  ///< Empty if it is not known.
  std::string where;     ///< "train.cpp:12", or the library: "libc.so.6". May be empty.

  bool operator==(const Frame&) const = default;
};

struct ThreadStack {
  int64_t tid = 0;
  std::string name;
  char state = '?';           ///< The letter of the thread's state, as in ps(1).
  std::string kernel;         ///< The kernel function in which it waits: "futex_wait_queue"; empty if none or unknown.
  std::string syscall;        ///< The name or number of its system call: "futex", "271"; empty if none or unknown.
  std::vector<Frame> frames;  ///< Innermost first.

  bool operator==(const ThreadStack&) const = default;
};

struct ProcessStack {
  int64_t pid = 0;
  std::string command;
  std::vector<ThreadStack> threads;        ///< The main thread first.
  std::vector<std::string> python;         ///< The lines of py-spy's output, from the first "Thread" on.
  std::vector<std::string> kernel_frames;  ///< The main thread's, if no tool has its frames. Only root may read them.
  std::vector<std::string> notes;          ///< Sentences that explain what is missing.
};

struct RankStack {
  int64_t rank = 0;
  std::string note;                     ///< Why `processes` is empty: "exited with code 0".
  std::vector<ProcessStack> processes;  ///< The rank's process, followed by the children that it only waits for.
};

/// Parses the output of `eu-stack -m -p`. Sets only the ids and frames of the threads.
std::vector<ThreadStack> parse_eu_stack(std::string_view text);
/// Parses the output of gdb's `thread apply all bt` or of pstack. A thread without a number gets `pid`.
std::vector<ThreadStack> parse_gdb(std::string_view text, int64_t pid);
/// Returns the lines of `py-spy dump` without the heading.
std::vector<std::string> parse_py_spy(std::string_view text);

/// Returns a text that is equal for ranks at the same place. It has the Python and native frames of their main threads,
/// without addresses and numbers. Other threads are ignored: number and places of the threads of Gloo and OpenMP differ
/// from rank to rank even if all ranks wait for the same thing.
std::string place_of(const RankStack& rank);

enum class ShownThreads { kMain, kAll };

/// Formats the stacks. Ranks at the same place are shown once, as a group. The smallest group comes last: in a hang, it
/// is mostly the one that the other ranks wait for. With kMain, other threads have one line for each kind.
std::string to_text(const std::vector<RankStack>& ranks, ShownThreads shown = ShownThreads::kMain);
nlohmann::ordered_json to_json(const std::vector<RankStack>& ranks);

/// Explains why a tool may not inspect a process, and what to do about it. Returns nullopt if `output` reports no
/// refusal. `ptrace_scope` is Yama's setting, nullopt in a kernel without Yama. `tracer` is the process that already
/// traces the inspected process, or 0.
std::optional<std::string> explain_refusal(std::string_view output, std::optional<int64_t> ptrace_scope,
                                           int64_t tracer);

}  // namespace yoke::stack
