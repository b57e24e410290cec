// tests/support/sanitized.h -- whether the tested code was built with a sanitizer.
#pragma once

extern "C" {
__attribute__((weak)) void __asan_init();
__attribute__((weak)) void __tsan_init();
}

namespace yoke::test {

/// With a sanitizer, measured times and sizes are not meaningful. This is a variable, not a macro, so that tests
/// without instrumentation compile to the same object file in every build.
inline const bool kIsSanitized = __asan_init != nullptr || __tsan_init != nullptr;

}  // namespace yoke::test
