#include "yoke/base/signal_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke {
namespace {

struct SignalWord {
  std::string_view name;
  int number;
  bool is_ending = false;
};
constexpr SignalWord kSignalWords[] = {
    {"TERM", SIGTERM, true}, {"KILL", SIGKILL, true}, {"INT", SIGINT, true}, {"HUP", SIGHUP, true},
    {"QUIT", SIGQUIT, true}, {"ABRT", SIGABRT, true}, {"USR1", SIGUSR1},     {"USR2", SIGUSR2},
    {"STOP", SIGSTOP},       {"TSTP", SIGTSTP},       {"CONT", SIGCONT},     {"WINCH", SIGWINCH},
    {"ALRM", SIGALRM},       {"PIPE", SIGPIPE},
};

/// The names of all signals by number, as sigabbrev_np() of glibc 2.32 has them. 1 to 31 are the same on x86 and ARM.
constexpr std::string_view kNames[] = {
    "",     "HUP",  "INT",  "QUIT", "ILL",    "TRAP",   "ABRT",  "BUS",  "FPE",  "KILL", "USR1",
    "SEGV", "USR2", "PIPE", "ALRM", "TERM",   "STKFLT", "CHLD",  "CONT", "STOP", "TSTP", "TTIN",
    "TTOU", "URG",  "XCPU", "XFSZ", "VTALRM", "PROF",   "WINCH", "POLL", "PWR",  "SYS",
};

}  // namespace

std::string signal_name(int signal) {
  if (signal > 0 && static_cast<size_t>(signal) < std::size(kNames)) return fmt::format("SIG{}", kNames[signal]);
  return fmt::format("signal {}", signal);
}

std::string describe_wait_status(int wait_status) {
  if (WIFSIGNALED(wait_status)) return "was killed by " + signal_name(WTERMSIG(wait_status));
  return fmt::format("exited with code {}", WEXITSTATUS(wait_status));
}

std::string describe_end(int status) {
  if (status <= 128) return fmt::format("the program ended with status {}", status);
  return fmt::format("{} ended the program", signal_name(status - 128));
}

int parse_signal(std::string_view text) {
  const auto name = text.starts_with("SIG") ? text.substr(3) : text;
  std::vector<std::string_view> names;
  for (const auto& known : kSignalWords) {
    if (known.name == name) return known.number;
    names.push_back(known.name);
  }
  const auto number = parse_int(text);
  if (number && *number > 0 && *number <= SIGRTMAX) return static_cast<int>(*number);
  throw Error(ErrorCode::kInvalidArgument, "there is no signal `{}`; there are {} and numbers", printable(text),
              fmt::join(names, ", "));
}

bool is_ending(int signal) {
  return std::ranges::any_of(kSignalWords,
                             [&](const SignalWord& known) { return known.number == signal && known.is_ending; });
}

}  // namespace yoke
