// yoke/dist/error_text.h -- what an exception says, for messages.
#pragma once

#include <exception>
#include <string>

namespace yoke::dist {

/// The text of an exception, without the stack trace that libtorch's errors have in what().
std::string error_text(const std::exception& error);

}  // namespace yoke::dist
