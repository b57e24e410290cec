// How it works: the dispatch key TESTING_ONLY_GenericMode, which libtorch itself does not use, comes before autograd
// and all devices. The key has a boxed kernel for each operator that may copy or wait, and a fallthrough for all other
// operators. A guardrail includes the key in the thread's dispatch state; without the key, dispatch is unchanged. The
// kernel calls the operator below the key, but leaves the key included, so that operators called inside are seen too.
// RecordFunction cannot do this, because exceptions in its callbacks are swallowed.
//
// libtorch copies a thread's dispatch state and RecordFunction callbacks to autograd's threads. So a callback that does
// nothing marks which guardrail a thread is in. (ThreadLocalDebugInfo would need no registry, but it is a stack: a
// profiler that stops inside the scope would fail to pop its own entry.)
#include "yoke/train/device/guardrails.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/train/detail/describe.h"
#include "yoke/train/device/detail/call_site.h"
#include "yoke/train/device/detail/guardrail_rules.h"

namespace yoke::train {

struct GuardrailReport::Impl {
  using Key =
      std::tuple<GuardrailKind, std::string, std::string, std::string, std::string, std::string, int64_t, std::string>;

  void add(const GuardrailPlace& found) {
    const std::lock_guard lock(mutex);
    const Key key(found.kind, found.operation, found.from, found.to, found.function, found.file, found.line,
                  found.backward_of);
    auto& place = places.emplace(key, found).first->second;
    if (place.count++ > 0) place.bytes += found.bytes;
  }

  std::mutex mutex;
  std::map<Key, GuardrailPlace> places;
};

namespace {

using torch::jit::Stack;

constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

struct Watch {
  GuardrailOptions options;
  std::shared_ptr<GuardrailReport::Impl> report;  ///< If null, the guardrail throws.
};

struct Watches {
  std::mutex mutex;
  std::map<at::CallbackHandle, std::shared_ptr<const Watch>> by_handle;
};

Watches& watches() {
  static auto& all = *new Watches();  // never freed: autograd's threads outlive main
  return all;
}

std::unique_ptr<at::ObserverContext> mark(const at::RecordFunction&) { return nullptr; }

/// The innermost guardrail that this thread is in; null if that guardrail has ended.
std::shared_ptr<const Watch> current_watch() {
  const auto& callbacks = at::get_record_function_tls_().sorted_tls_callbacks_;
  const auto mine = std::find_if(callbacks.rbegin(), callbacks.rend(),
                                 [](const auto& entry) { return entry.callback_.start() == &mark; });
  if (mine == callbacks.rend()) return nullptr;
  const std::lock_guard lock(watches().mutex);
  const auto found = watches().by_handle.find(mine->handle_);
  return found == watches().by_handle.end() ? nullptr : found->second;
}

/// The operator that the program called. Operators that it calls inside do not change this.
thread_local const c10::OperatorHandle* outermost = nullptr;

class Outermost {
 public:
  explicit Outermost(const c10::OperatorHandle& op) : is_this_(outermost == nullptr) {
    if (is_this_) outermost = &op;
  }
  ~Outermost() {
    if (is_this_) outermost = nullptr;
  }
  Outermost(const Outermost&) = delete;
  Outermost& operator=(const Outermost&) = delete;

 private:
  bool is_this_;
};

/// A call that a guardrail catches.
struct Found {
  GuardrailKind kind;
  c10::Device from, to;
  at::Tensor tensor;
};

std::optional<Found> sync_of(const at::Tensor& tensor, const Watch& watch) {
  if (!watch.options.syncs || !tensor.defined() || !is_waited_for(tensor.device())) return std::nullopt;
  return Found{GuardrailKind::kSync, tensor.device(), c10::kCPU, tensor};
}

/// The name of the autograd node whose backward runs on this thread; empty outside of backward.
std::string current_node_name() {
  const auto node = torch::autograd::get_current_node();
  return node ? node->name() : "";
}

std::optional<Found> find_copy(const Stack& stack, size_t first, const Watch& watch) {
  const auto &to = stack[first].toTensor(), &from = stack[first + 1].toTensor();
  if (!to.defined() || !from.defined() || to.device() == from.device()) return std::nullopt;
  CopyFacts copy{from.device(), to.device(), to.numel() == 0, stack[first + 2].toBool()};
  if (copy.non_blocking) {
    const auto& host = from.is_cpu() ? from : to;
    copy.host_is_pinned = host.is_cpu() && host.is_pinned();
  }
  const auto node = current_node_name();
  copy.is_backward_of_copy = node == "ToCopyBackward0" || node == "CopyBackwards";
  const auto kind = judge_copy(copy, watch.options);
  return kind ? std::optional(Found{*kind, copy.from, copy.to, to}) : std::nullopt;
}

std::optional<Found> find_sync(const Stack& stack, size_t first, const Watch& watch) {
  for (size_t i = first; i < stack.size(); ++i) {
    if (!stack[i].isTensor()) continue;
    if (auto found = sync_of(stack[i].toTensor(), watch)) return found;
  }
  return std::nullopt;
}

/// Finds an index that is a mask: libtorch waits for the device to count its true elements. An exception: to write one
/// CPU number through a single mask, libtorch uses masked_fill, which does not wait.
std::optional<Found> find_mask(const Stack& stack, size_t first, const Watch& watch) {
  std::optional<Found> found;
  int64_t num_indices = 0;
  for (const std::optional<at::Tensor>& index : stack[first + 1].toOptionalTensorList().vec()) {
    if (!index || !index->defined()) continue;
    ++num_indices;
    if (index->scalar_type() != at::kBool && index->scalar_type() != at::kByte) continue;
    if (auto one = sync_of(*index, watch)) found = std::move(one);
  }
  const bool is_write = stack.size() > first + 2;
  if (is_write && num_indices == 1 && !stack[first + 3].toBool()) {  // not accumulating
    const auto& values = stack[first + 2].toTensor();
    if (values.numel() == 1 && values.is_cpu()) return std::nullopt;
  }
  return found;
}

template <GuardrailCheck kCheck>
std::optional<Found> find(const Stack& stack, size_t first, const Watch& watch) {
  if constexpr (kCheck == GuardrailCheck::kCopy) return find_copy(stack, first, watch);
  if constexpr (kCheck == GuardrailCheck::kSync) return find_sync(stack, first, watch);
  if constexpr (kCheck == GuardrailCheck::kMaskIndex) return find_mask(stack, first, watch);
  if constexpr (kCheck == GuardrailCheck::kRepeat) {
    return stack[first + 1].isNone() ? sync_of(stack[first].toTensor(), watch) : std::nullopt;
  }
  return std::nullopt;
}

void act_on(const Found& found, const Watch& watch) {
  auto site = user_call();
  GuardrailPlace place{.kind = found.kind,
                       .operation = outermost->schema().name(),
                       .from = found.from.str(),
                       .to = found.to.str(),
                       .tensor = describe(found.tensor),
                       .function = std::move(site.function),
                       .file = std::move(site.file),
                       .line = site.line,
                       .backward_of = current_node_name()};
  if (found.kind == GuardrailKind::kCopy && found.tensor.has_storage()) {  // sparse tensors have no storage
    place.bytes = static_cast<int64_t>(found.tensor.nbytes());
  }
  if (watch.report == nullptr) throw Error(ErrorCode::kFailedPrecondition, guardrail_message(place));
  watch.report->add(place);
}

template <GuardrailCheck kCheck>
void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const Outermost name(op);
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  if constexpr (kCheck != GuardrailCheck::kName) {
    const auto watch = current_watch();
    const auto first = stack->size() - op.schema().arguments().size();
    if (const auto found = watch ? find<kCheck>(*stack, first, *watch) : std::nullopt) {
      act_on(*found, *watch);
      const DeviceGuardrails::Allow counted;  // operators inside belong to the same copy or wait
      op.redispatchBoxed(below, stack);
      return;
    }
  }
  op.redispatchBoxed(below, stack);
}

std::optional<c10::KernelFunction> kernel_for(GuardrailCheck check) {
  using c10::KernelFunction;
  switch (check) {
    case GuardrailCheck::kNone: return std::nullopt;
    case GuardrailCheck::kName: return KernelFunction::makeFromBoxedFunction<&intercept<GuardrailCheck::kName>>();
    case GuardrailCheck::kCopy: return KernelFunction::makeFromBoxedFunction<&intercept<GuardrailCheck::kCopy>>();
    case GuardrailCheck::kSync: return KernelFunction::makeFromBoxedFunction<&intercept<GuardrailCheck::kSync>>();
    case GuardrailCheck::kMaskIndex:
      return KernelFunction::makeFromBoxedFunction<&intercept<GuardrailCheck::kMaskIndex>>();
    case GuardrailCheck::kRepeat: return KernelFunction::makeFromBoxedFunction<&intercept<GuardrailCheck::kRepeat>>();
  }
  return std::nullopt;
}

/// Safe while other threads call operators: only entries of this dispatch key change, and those threads do not read
/// them.
void register_kernels() {
  static std::once_flag once;
  std::call_once(once, [] {
    auto& dispatcher = c10::Dispatcher::singleton();
    static auto& kept = *new std::vector<c10::RegistrationHandleRAII>();  // never undone: see watches()
    kept.push_back(dispatcher.registerFallback(kKey, c10::KernelFunction::makeFallthrough(), "yoke"));
    for (const auto& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (!op) continue;
      const auto full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
      if (auto kernel = kernel_for(guardrail_check(full, op->getTags()))) {
        kept.push_back(dispatcher.registerImpl(name, kKey, *std::move(kernel), std::nullopt, nullptr, "yoke"));
      }
    }
  });
}

bool is_on() { return c10::impl::tls_is_dispatch_key_included(kKey); }
void set_on(bool on) { c10::impl::tls_set_dispatch_key_included(kKey, on); }

}  // namespace

GuardrailReport::GuardrailReport() : impl_(std::make_shared<Impl>()) {}

std::vector<GuardrailPlace> GuardrailReport::places() const {
  std::vector<GuardrailPlace> result;
  {
    const std::lock_guard lock(impl_->mutex);
    for (const auto& [key, place] : impl_->places) result.push_back(place);
  }
  std::stable_sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
  return result;
}

std::string GuardrailReport::to_text() const { return guardrail_text(places()); }
std::string GuardrailReport::to_json() const { return guardrail_json(places()); }

DeviceGuardrails::DeviceGuardrails(const GuardrailOptions& options) : DeviceGuardrails(options, nullptr) {}

DeviceGuardrails::DeviceGuardrails(const GuardrailReport& report, const GuardrailOptions& options)
    : DeviceGuardrails(options, report.impl_) {}

DeviceGuardrails::DeviceGuardrails(const GuardrailOptions& options, std::shared_ptr<GuardrailReport::Impl> report) {
  register_kernels();
  // No code runs callbacks of this scope, so `mark` is never called.
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&mark).scopes({at::RecordScope::BUILD_FEATURE}));
  {
    const std::lock_guard lock(watches().mutex);
    watches().by_handle.emplace(handle_, std::make_shared<Watch>(Watch{options, std::move(report)}));
  }
  was_on_ = is_on();
  set_on(true);
}

DeviceGuardrails::~DeviceGuardrails() {
  set_on(was_on_);
  {
    const std::lock_guard lock(watches().mutex);
    watches().by_handle.erase(handle_);
  }
  at::removeCallback(handle_);
}

DeviceGuardrails::Allow::Allow() : was_on_(is_on()) { set_on(false); }
DeviceGuardrails::Allow::~Allow() { set_on(was_on_); }

}  // namespace yoke::train
