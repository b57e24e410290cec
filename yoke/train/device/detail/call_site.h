// yoke/train/device/detail/call_site.h -- finds the function of the user's program that called into libtorch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace yoke::train {

struct CallSite {
  std::string
      function;      ///< Demangled, or "PROGRAM+0x12f0" if the symbols were stripped. Empty if there is no such call.
  std::string file;  ///< Empty without debug information.
  int64_t line = 0;
};

/// Finds the innermost call on this thread's stack that is outside of libtorch, yoke and the standard library. If the
/// compiler has inlined the user's function, this is its caller, with the right line. If it has inlined libtorch's
/// function, only addr2line knows the line, and there is none without that program; nor does libtorch know a lambda
/// that was inlined into std::function. Each address is looked up once in a process. Thread-safe.
CallSite user_call();

/// The same for the return addresses of a stack, innermost first, that begins in code of libtorch or yoke.
CallSite user_call(std::span<void* const> stack);

/// Returns whether a function, by its demangled name, belongs to libtorch, yoke or the standard library. Templates and
/// inline functions of these libraries, and all of yoke, are compiled into the user's program. (pure)
bool is_library_function(std::string_view demangled);

/// Returns whether a file, by its path in debug information, is a header of libtorch, yoke or the standard library.
/// (pure)
bool is_library_header(std::string_view path);

/// Returns whether a shared object belongs to libtorch, yoke, or the system's libraries. (pure)
bool is_library_file(std::string_view path);

}  // namespace yoke::train
