// yoke/program/child_error.h -- passes an error from a child process to its parent.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <string_view>

#include "yoke/base/error.h"

namespace yoke::program {

/// What a user is told about an exception.
Error as_error(const std::exception& exception);

/// Runs `work`. If it throws, returns the error as bytes for throw_child_error(); otherwise an empty text.
std::string error_in_child(const std::function<void()>& work);

/// Errors  the one in `bytes`, with its code and its text.
[[noreturn]] void throw_child_error(std::string_view bytes);

}  // namespace yoke::program
