// yoke/keep/detail/messages.h -- parts of what the user is told when devices are given back.
#pragma once

#include <string>

#include "yoke/base/tell.h"
#include "yoke/program/watched_program.h"

namespace yoke::keep {

/// Tells the user here, and on other terminals.
inline void tell_everywhere(const Tell& tell, const std::string& text) {
  tell(Told::kNews, text);
  tell(Told::kElsewhere, text);
}

/// " by root" if somebody else sent the signal.
std::string by_whom(const program::SignalMessages::Message& message);

}  // namespace yoke::keep
