// yoke/device/process/signal_word.h -- signals as users write them. Pure.
#pragma once

#include <string_view>

namespace yoke::device {

/// The number of "TERM", "SIGTERM" or "15". Errors  kInvalidArgument, with the names that are understood.
int parse_signal(std::string_view text);

/// Whether a process that does not handle the signal ends, and people send it for that.
bool is_ending(int signal);

}  // namespace yoke::device
