// yoke/cli/stack_report.h -- where the ranks of a job are: what tools print as values, and those as text. Pure.
//
// Texts are as processes and tools wrote them, any bytes, until to_text() makes them printable.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::cli {

struct Frame {
  std::string function;  ///< Empty: not known.
  std::string where;     ///< "train.cpp:12", or the library: "libc.so.6". May be empty.

  bool operator==(const Frame&) const = default;
};

struct ThreadStack {
  int64_t tid = 0;
  std::string name;
  char state = '?';           ///< As in ps(1).
  std::string kernel;         ///< Where in the kernel it waits: "futex_wait_queue". Empty: not known, or nowhere.
  std::string syscall;        ///< "futex", "271". Empty: not known, or none.
  std::vector<Frame> frames;  ///< Innermost first.

  bool operator==(const ThreadStack&) const = default;
};

struct ProcessStack {
  int64_t pid = 0;
  std::string command;
  std::vector<ThreadStack> threads;        ///< The main thread first.
  std::vector<std::string> python;         ///< py-spy's lines, from its first "Thread" on.
  std::vector<std::string> kernel_frames;  ///< Of the main thread, where no tool has its frames; for root alone.
  std::vector<std::string> notes;          ///< Why something is missing.
};

struct RankStack {
  int64_t rank = 0;
  std::string note;                     ///< "exited with code 0": why there are no processes.
  std::vector<ProcessStack> processes;  ///< Its own, then the children that it only waits for.
};

/// What `eu-stack -m -p` printed; frames only.
std::vector<ThreadStack> parse_eu_stack(std::string_view text);
/// What gdb's `thread apply all bt`, or pstack, printed; frames only. `pid`: of a thread without a number.
std::vector<ThreadStack> parse_gdb(std::string_view text, int64_t pid);
/// What `py-spy dump` printed, without its heading.
std::vector<std::string> parse_py_spy(std::string_view text);

/// Equal for ranks that are at the same place: what their main threads do, in Python and natively, without addresses
/// and numbers. Other threads do not count: how many Gloo and OpenMP have, and where these are, differs from rank to
/// rank although all wait for the same.
std::string place_of(const RankStack& rank);

enum class ShownThreads { kMain, kAll };

/// Ranks at the same place once, the smallest group last: that is who is missing in a hang. kMain: of threads other
/// than the main one, a line for each kind.
std::string to_text(const std::vector<RankStack>& ranks, ShownThreads shown = ShownThreads::kMain);
nlohmann::ordered_json to_json(const std::vector<RankStack>& ranks);

/// Why a tool may not look into a process, and what to do, if `output` says so. `ptrace_scope`: of Yama, nullopt where
/// the kernel has none. `tracer`: the process that already does; 0: none.
std::optional<std::string> explain_refusal(std::string_view output, std::optional<int64_t> ptrace_scope,
                                           int64_t tracer);

}  // namespace yoke::cli
