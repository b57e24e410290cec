// Remembers where exceptions are thrown, so that a program that ends with one says in which of its own lines that was,
// and what they say, for a World that is destroyed by one.
//
// The C++ runtime has no hook for it. As in other tools, __cxa_throw, __cxa_rethrow and std::rethrow_exception are
// defined here, before those of libstdc++, which they call. The last one passes on what another thread has thrown: a
// worker of a loader, which was in the user's code, or a thread of libtorch, which was not. Then the stack of the
// thread that waited has the user's line.
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <span>
#include <typeinfo>
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
  size_t number = 0;             ///< Of the throws of this thread; 0: unused.
  int num_on_their_way = 0;      ///< Other exceptions, when this one was thrown last.
  std::array<char, 256> text = {};
  Addresses stack;   ///< Where this thread threw it, or passed it on.
  Addresses origin;  ///< Where another thread threw it, if one did.
};

/// The latest ones, because other exceptions may be thrown and caught while one is on its way.
thread_local constinit std::array<Throw, 4> last_throws;
thread_local constinit size_t num_throws = 0;

Throw* find(const void* object) {
  const auto found = std::ranges::find(last_throws, object, &Throw::object);
  return object == nullptr || found == last_throws.end() ? nullptr : found;
}

void* object_of(const std::exception_ptr& error) {  // an exception_ptr is a pointer to the exception
  static_assert(sizeof(error) == sizeof(void*));
  void* object = nullptr;
  std::memcpy(&object, static_cast<const void*>(&error), sizeof object);
  return object;
}

void note_throw(Throw& one) {
  one.number = ++num_throws;
  one.num_on_their_way = std::uncaught_exceptions();
}

/// The text is copied now, because later nobody knows whether the exception is still there.
void copy_text(Throw& one, void* object, const std::type_info& type) {
  one.text.front() = '\0';
  if (!typeid(std::exception).__do_catch(&type, &object, 1)) return;  // as `catch (const std::exception&)` does
  const auto* error = static_cast<const std::exception*>(object);
  const auto* of_torch = dynamic_cast<const c10::Error*>(error);  // what() would look up the lines of its stack
  const auto* text = of_torch != nullptr ? of_torch->what_without_backtrace() : error->what();
  if (text == nullptr) return;
  const auto size = strnlen(text, one.text.size() - 1);
  std::memcpy(one.text.data(), text, size);
  one.text[size] = '\0';
}

/// Most exceptions are caught again, so only addresses and the beginning of the text are kept. That takes some
/// microseconds.
[[gnu::noinline]] Throw& remember(void* object, const std::type_info& type) {
  if (auto* earlier = find(object)) *earlier = {};  // at the same address
  auto& one = *std::ranges::min_element(last_throws, {}, &Throw::number);
  one.object = object;
  one.stack.size = backtrace(one.stack.frames.data(), static_cast<int>(one.stack.frames.size()));
  one.origin.size = 0;
  copy_text(one, object, type);
  note_throw(one);
  return one;
}

/// Where the latest exceptions of all threads were thrown.
class Origins {
 public:
  void add(const Throw& thrown) {
    const Use use(in_use_);
    if (!use.is_granted) return;
    for (auto& [object, stack] : latest_) {
      if (object == thrown.object) object = nullptr;  // of an earlier exception at the same address
    }
    latest_[next_++ % latest_.size()] = {thrown.object, thrown.stack};
  }
  void find(Throw& passed_on) {
    const Use use(in_use_);
    if (!use.is_granted) return;
    const auto found = std::ranges::find(latest_, passed_on.object, &Entry::first);
    if (found != latest_.end()) passed_on.origin = found->second;
  }

 private:
  using Entry = std::pair<const void*, Addresses>;
  /// Nobody waits, as a process that was forked meanwhile would for ever: a thread that finds this in use leaves its
  /// exception out.
  struct Use {
    explicit Use(std::atomic_flag& flag) : in_use(flag), is_granted(!flag.test_and_set(std::memory_order_acquire)) {}
    ~Use() {
      if (is_granted) in_use.clear(std::memory_order_release);
    }
    std::atomic_flag& in_use;
    const bool is_granted;
  };

  std::array<Entry, 16> latest_ = {};
  size_t next_ = 0;
  std::atomic_flag in_use_;
};
constinit Origins origins;

/// The stack of the first throw is kept.
[[gnu::always_inline]] inline void remember_again(const std::exception_ptr& error) {
  auto* object = object_of(error);
  if (auto* known = find(object)) {
    note_throw(*known);
  } else if (object != nullptr) {  // another thread has thrown it
    origins.find(remember(object, *error.__cxa_exception_type()));
  }
}

/// Those that were thrown since this one have been caught, or were thrown while it is on its way.
std::string text_on_its_way() {
  const int num_others = std::uncaught_exceptions() - 1;
  const Throw* latest = nullptr;
  for (const auto& one : last_throws) {
    if (one.object == nullptr || one.num_on_their_way != num_others) continue;
    if (latest == nullptr || one.number > latest->number) latest = &one;
  }
  return latest == nullptr ? "" : latest->text.data();
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

CallSite site_of(const Addresses& stack) {
  constexpr int kOwn = 2;  // remember() and the function that called it
  if (stack.size <= kOwn) return {};
  return user_call(std::span<void* const>(stack.frames).subspan(kOwn, static_cast<size_t>(stack.size - kOwn)));
}

/// Returns the line of the user's program that led to the exception that is being handled: "train_epoch, train.cpp:41".
std::string place_of_failure(bool needs_line) {
  const auto* thrown = find(object_of(std::current_exception()));
  if (thrown == nullptr) return "";
  auto site = site_of(thrown->origin);
  if (site.function.empty()) site = site_of(thrown->stack);
  if (!site.file.empty()) return fmt::format("{}, {}:{}", site.function, base_name(site.file), site.line);
  return needs_line ? "" : site.function;
}

[[gnu::constructor]] void install() { set_failure_place(place_of_failure, text_on_its_way); }

}  // namespace
}  // namespace yoke::train

extern "C" [[noreturn]] void __cxa_throw(void* object, void* type, void (*destructor)(void*)) {
  yoke::train::origins.add(yoke::train::remember(object, *static_cast<const std::type_info*>(type)));
  static const auto real = yoke::train::next<void(void*, void*, void (*)(void*))>("__cxa_throw");
  real(object, type, destructor);
  __builtin_unreachable();
}

extern "C" [[noreturn]] void __cxa_rethrow() {
  yoke::train::remember_again(std::current_exception());
  static const auto real = yoke::train::next<void()>("__cxa_rethrow");
  real();
  __builtin_unreachable();
}

namespace std {

[[noreturn]] void rethrow_exception(exception_ptr error) {
  yoke::train::remember_again(error);
  static const auto real =
      yoke::train::next<void(exception_ptr)>("_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE");
  real(std::move(error));
  __builtin_unreachable();
}

}  // namespace std
