// Remembers where exceptions are thrown, so that a program that ends with one says in which of its own lines that was.
//
// The C++ runtime has no hook for it. As in other tools, __cxa_throw and std::rethrow_exception are defined here,
// before those of libstdc++, which they call. The second one passes on what another thread has thrown: a worker of a
// loader, which was in the user's code, or a thread of libtorch, which was not. Then the stack of the thread that
// waited has the user's line.
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <span>
#include <utility>

#include "yoke/base/text.h"
#include "yoke/contract/failure_place.h"
#include "yoke/train/device/detail/call_site.h"

namespace yoke::train {
namespace {

struct Addresses {
  std::array<void*, 64> frames = {};
  int size = 0;
};

struct Throw {
  const void* object = nullptr;  ///< The exception.
  Addresses stack;               ///< Where this thread threw it, or passed it on.
  Addresses origin;              ///< Where another thread threw it, if one did.
};

/// The latest ones, because other exceptions may be thrown and caught while one is on its way.
template <size_t kSize>
class Throws {
 public:
  const Throw* find(const void* object) const {
    const auto found = std::ranges::find(latest_, object, &Throw::object);
    return object == nullptr || found == latest_.end() ? nullptr : &*found;
  }
  Throw& add(const void* object) {
    for (auto& one : latest_) {
      if (one.object == object) one.object = nullptr;  // of an earlier exception at the same address
    }
    auto& one = latest_[next_++ % kSize];
    one.object = object;
    return one;
  }

 private:
  std::array<Throw, kSize> latest_ = {};
  size_t next_ = 0;
};
thread_local constinit Throws<4> here;
/// Those of all threads. A thread that finds this in use leaves its exception out: it must not wait, as a process that
/// was forked meanwhile would for ever.
constinit Throws<16> everywhere;
constinit std::atomic_flag everywhere_in_use;

const void* object_of(const std::exception_ptr& error) {  // an exception_ptr is a pointer to the exception
  static_assert(sizeof(error) == sizeof(void*));
  const void* object = nullptr;
  std::memcpy(&object, static_cast<const void*>(&error), sizeof object);
  return object;
}

/// Most exceptions are caught again, so only the addresses are kept. That takes some microseconds.
[[gnu::noinline]] Throw& remember(const void* object) {
  auto& one = here.add(object);
  one.stack.size = backtrace(one.stack.frames.data(), static_cast<int>(one.stack.frames.size()));
  one.origin.size = 0;
  return one;
}

[[gnu::noinline]] void remember_throw(const void* object) {
  const auto& one = remember(object);
  if (everywhere_in_use.test_and_set(std::memory_order_acquire)) return;
  everywhere.add(object) = one;
  everywhere_in_use.clear(std::memory_order_release);
}

[[gnu::noinline]] void remember_rethrow(const void* object) {
  if (here.find(object) != nullptr) return;
  auto& one = remember(object);  // another thread has thrown it
  if (everywhere_in_use.test_and_set(std::memory_order_acquire)) return;
  if (const auto* thrown = everywhere.find(object)) one.origin = thrown->stack;
  everywhere_in_use.clear(std::memory_order_release);
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

CallSite site_of(const Addresses& stack) {
  constexpr int kOwn = 3;  // remember(), its caller, and the function that the exception came through
  if (stack.size <= kOwn) return {};
  return user_call(std::span<void* const>(stack.frames).subspan(kOwn, static_cast<size_t>(stack.size - kOwn)));
}

/// Returns the line of the user's program that led to the exception that is being handled: "train_epoch, train.cpp:41".
std::string place_of_failure(bool needs_line) {
  const auto* thrown = here.find(object_of(std::current_exception()));
  if (thrown == nullptr) return "";
  auto site = site_of(thrown->origin);
  if (site.function.empty()) site = site_of(thrown->stack);
  if (!site.file.empty()) return fmt::format("{}, {}:{}", site.function, base_name(site.file), site.line);
  return needs_line ? "" : site.function;
}

[[gnu::constructor]] void install() { set_failure_place(place_of_failure); }

}  // namespace
}  // namespace yoke::train

extern "C" [[noreturn]] void __cxa_throw(void* object, void* type, void (*destructor)(void*)) {
  yoke::train::remember_throw(object);
  static const auto real = yoke::train::next<void(void*, void*, void (*)(void*))>("__cxa_throw");
  real(object, type, destructor);
  __builtin_unreachable();
}

namespace std {

[[noreturn]] void rethrow_exception(exception_ptr error) {
  yoke::train::remember_rethrow(yoke::train::object_of(error));
  static const auto real =
      yoke::train::next<void(exception_ptr)>("_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE");
  real(std::move(error));
  __builtin_unreachable();
}

}  // namespace std
