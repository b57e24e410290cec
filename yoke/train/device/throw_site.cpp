// Remembers where exceptions are thrown, so that a program that ends with one says in which of its own lines that was.
//
// The C++ runtime has no hook for it. As in other tools, __cxa_throw and std::rethrow_exception are defined here,
// before those of libstdc++, which they call. The second one passes on what a thread of libtorch has thrown, and then
// the stack of the thread that waited has the user's line.
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <span>
#include <utility>

#include "yoke/base/text.h"
#include "yoke/contract/failure_place.h"
#include "yoke/train/device/detail/call_site.h"

namespace yoke::train {
namespace {

struct Throw {
  const void* object = nullptr;  ///< The exception.
  std::array<void*, 64> stack = {};
  int size = 0;
};
/// The latest ones, because other exceptions may be thrown and caught while one is on its way.
thread_local constinit std::array<Throw, 4> last_throws;
thread_local constinit size_t num_throws = 0;

const Throw* find(const void* object) {
  const auto found = std::ranges::find(last_throws, object, &Throw::object);
  return object == nullptr || found == last_throws.end() ? nullptr : found;
}

const void* object_of(const std::exception_ptr& error) {  // an exception_ptr is a pointer to the exception
  static_assert(sizeof(error) == sizeof(void*));
  const void* object = nullptr;
  std::memcpy(&object, static_cast<const void*>(&error), sizeof object);
  return object;
}

/// Most exceptions are caught again, so only the addresses are kept. That takes some microseconds.
[[gnu::noinline]] void remember(const void* object) {
  for (auto& one : last_throws) {
    if (one.object == object) one.object = nullptr;  // of an earlier exception at the same address
  }
  auto& one = last_throws[num_throws++ % last_throws.size()];
  one.object = object;
  one.size = backtrace(one.stack.data(), static_cast<int>(one.stack.size()));
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// Returns the line of the user's program that led to the exception that is being handled: "train_epoch, train.cpp:41".
std::string place_of_failure(bool needs_line) {
  const auto* thrown = find(object_of(std::current_exception()));
  constexpr int kOwn = 2;  // remember() and the function that called it
  if (thrown == nullptr || thrown->size <= kOwn) return "";
  const auto site =
      user_call(std::span<void* const>(thrown->stack).subspan(kOwn, static_cast<size_t>(thrown->size - kOwn)));
  if (!site.file.empty()) return fmt::format("{}, {}:{}", site.function, base_name(site.file), site.line);
  return needs_line ? "" : site.function;
}

[[gnu::constructor]] void install() { set_failure_place(place_of_failure); }

}  // namespace
}  // namespace yoke::train

extern "C" [[noreturn]] void __cxa_throw(void* object, void* type, void (*destructor)(void*)) {
  yoke::train::remember(object);
  static const auto real = yoke::train::next<void(void*, void*, void (*)(void*))>("__cxa_throw");
  real(object, type, destructor);
  __builtin_unreachable();
}

namespace std {

[[noreturn]] void rethrow_exception(exception_ptr error) {
  const auto* object = yoke::train::object_of(error);
  if (yoke::train::find(object) == nullptr) yoke::train::remember(object);  // another thread has thrown it
  static const auto real =
      yoke::train::next<void(exception_ptr)>("_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE");
  real(std::move(error));
  __builtin_unreachable();
}

}  // namespace std
