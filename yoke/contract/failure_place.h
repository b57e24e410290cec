// yoke/contract/failure_place.h -- how a report of an exception learns what only the library of stacks knows: which
// line of the program it came from, and, while it is on its way, what it says.
#pragma once

#include <string>

namespace yoke {

/// Returns the place in the user's program at which the exception was thrown that is being handled, or the innermost
/// call of the user's that led there: "train_epoch, train.cpp:41", or without debug information "train_epoch". Empty:
/// it is not known, or has no line and `needs_line` is true.
using FailurePlace = std::string (*)(bool needs_line);

/// Returns the beginning of the text of the exception that is on its way, for a destructor that it calls. Empty: it is
/// not known.
using ThrownText = std::string (*)();

/// For the library that knows stacks (yoke/train/device/throw_site.cpp).
void set_failure_place(FailurePlace place, ThrownText text);

/// Returns " (PLACE)", to follow the message of the exception that is being handled, or an empty text.
/// An error of yoke names its object and reason, so without a line its place is left out.
std::string failure_place(bool is_error_of_yoke) noexcept;

/// What ThrownText returns; empty if nobody knows. A destructor cannot ask for the exception that calls it.
std::string thrown_text() noexcept;

}  // namespace yoke
