// yoke/train/device/detail/call_site.h -- finds the function of the user's program that called into libtorch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace yoke::train {

struct CallSite {
  std::string
      function;      ///< Demangled, or "PROGRAM+0x12f0" if its symbols were stripped. Empty if there is no such call.
  std::string file;  ///< Empty without debug information.
  int64_t line = 0;
};

/// The innermost call on this thread's stack that is outside of libtorch, yoke and the standard library. The compiler
/// may have inlined the user's function into its caller, which is then the one that is found, with the right line.
/// Addresses are looked up once in a process. Thread-safe.
CallSite user_call();

/// Whether a function, by its demangled name, belongs to libtorch, yoke or the standard library. Their templates and
/// inline functions are compiled into the user's program, and so is yoke's library. (pure)
bool is_library_function(std::string_view demangled);

/// Whether a shared object belongs to libtorch, yoke, or the system's libraries. (pure)
bool is_library_file(std::string_view path);

}  // namespace yoke::train
