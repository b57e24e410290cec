// yoke/stack/report.h -- parses the output of debuggers about the ranks of a job, and shows it as text and JSON. Pure.
//
// Texts contain the bytes as processes and tools wrote them. Only to_text() makes them printable.
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
  char state = '?';     ///< The letter of its state, as in ps(1).
  std::string kernel;   ///< Where in the kernel it waits: "futex_wait_queue"; empty if it does not wait there, or if
                        ///< that is not known.
  std::string syscall;  ///< Its system call: "futex", "271"; empty if it is in none, or if that is not known.
  std::vector<Frame> frames;  ///< Innermost first.

  bool operator==(const ThreadStack&) const = default;
};

struct ProcessStack {
  int64_t pid = 0;
  std::string command;
  std::vector<ThreadStack> threads;        ///< The main thread first.
  std::vector<std::string> python;         ///< The lines of py-spy, from the first "Thread" on.
  std::vector<std::string> kernel_frames;  ///< The main thread's, if no tool has its frames. Only root may read them.
  std::vector<std::string> notes;          ///< Sentences that explain what is missing.
};

struct RankStack {
  int64_t rank = 0;
  std::string note;                     ///< Why `processes` is empty: "exited with code 0".
  std::vector<ProcessStack> processes;  ///< The rank's process, then the children that it only waits for.
};

/// Reads the output of `eu-stack -m -p`. The threads get frames only.
std::vector<ThreadStack> parse_eu_stack(std::string_view text);
/// Likewise reads the output of gdb's `thread apply all bt` or of pstack. A thread without a number gets `pid`.
std::vector<ThreadStack> parse_gdb(std::string_view text, int64_t pid);
/// Reads the output of `py-spy dump`: its lines without the heading.
std::vector<std::string> parse_py_spy(std::string_view text);

/// Returns a text that is equal for ranks at the same place. It has the frames of their main threads, of Python and
/// native ones, without addresses and numbers. Other threads do not count: the number and places of the threads of Gloo
/// and OpenMP differ from rank to rank although all ranks wait for the same thing.
std::string place_of(const RankStack& rank);

enum class ShownThreads { kMain, kAll };

/// Ranks at the same place are shown once. The smallest group comes last: in a hang, these are the ranks that are
/// missing. kMain shows the other threads as one line for each kind.
std::string to_text(const std::vector<RankStack>& ranks, ShownThreads shown = ShownThreads::kMain);
nlohmann::ordered_json to_json(const std::vector<RankStack>& ranks);

/// Explains why a tool may not look into a process, and what to do about it; nullopt if `output` reports no refusal.
/// `ptrace_scope` is Yama's setting, nullopt in a kernel without Yama. `tracer` is the process that already traces it,
/// or 0.
std::optional<std::string> explain_refusal(std::string_view output, std::optional<int64_t> ptrace_scope,
                                           int64_t tracer);

}  // namespace yoke::stack
