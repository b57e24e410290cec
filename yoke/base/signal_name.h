// yoke/base/signal_name.h -- names of signals, and how a program ended in words.
#pragma once

#include <string>
#include <string_view>

namespace yoke {

/// Returns the name, such as "SIGTERM", or "signal 64" for a signal without one.
std::string signal_name(int signal);

/// "exited with code 3", or "was killed by SIGSEGV", for a status of waitpid().
std::string describe_wait_status(int wait_status);

/// "the program ended with status 3", or "SIGSEGV ended the program" if `status` is 128 plus the number of a signal.
std::string describe_end(int status);

/// Returns the number of "TERM", "SIGTERM" or "15". Errors  kInvalidArgument, with the names that are accepted.
int parse_signal(std::string_view text);

/// Whether `signal` is usually sent to end processes, and ends a process that does not handle it.
bool is_ending(int signal);

}  // namespace yoke
