// tests/support/sanitized.h -- whether what is tested was built with a sanitizer.
#pragma once

extern "C" {
__attribute__((weak)) void __asan_init();
__attribute__((weak)) void __tsan_init();
}

namespace yoke::test {

/// Times and sizes say nothing then. Asked for when the test runs, so that tests which are not instrumented compile to
/// the same object in every build.
inline const bool kIsSanitized = __asan_init != nullptr || __tsan_init != nullptr;

}  // namespace yoke::test
