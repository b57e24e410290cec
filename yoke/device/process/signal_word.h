// yoke/device/process/signal_word.h -- signals as users write them. Pure.
#pragma once

#include <string_view>

namespace yoke::device {

/// Returns the number of "TERM", "SIGTERM" or "15". Errors  kInvalidArgument, with the names that are accepted.
int parse_signal(std::string_view text);

/// Whether `signal` is usually sent to end processes, and ends a process that does not handle it.
bool is_ending(int signal);

}  // namespace yoke::device
