#include "yoke/dist/detail/shared_work.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <semaphore>
#include <thread>
#include <utility>

#include "yoke/dist/detail/losses.h"

namespace yoke::dist {

using shared::Engine;
using shared::Transfer;

namespace {

/// What follows one collective is over before the next one ends, as if one thread did both, unless it starts another
/// collective or takes so long. After a failure, that holds for all in flight. A script that ends then would otherwise
/// leave a thread in Python's objects, and Python aborts it at the exit.
constexpr std::chrono::milliseconds kPatience(100);

/// Of a thread that runs a call: who waits for it; null if nobody does any more.
thread_local std::binary_semaphore* waiter = nullptr;

void stop_waiting_for_this_call() {
  if (auto* const one = std::exchange(waiter, nullptr)) one->release();
}

/// How many functions have objects that may be Python's: ends of collectives that run, and what follows futures.
std::atomic<int64_t> num_running{0};

struct Running {
  Running() { ++num_running; }
  ~Running() { --num_running; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

}  // namespace

struct Callbacks::State {
  std::mutex mutex;
  std::condition_variable news;
  std::deque<std::function<void()>> calls;
  size_t num_idle = 0;
  bool is_over = false;
};

Callbacks::Callbacks() : state_(std::make_shared<State>()) {}

Callbacks::~Callbacks() {
  const std::lock_guard lock(state_->mutex);
  state_->is_over = true;
  state_->news.notify_all();
}

void Callbacks::run(std::function<void()> call) {
  const auto is_done = std::make_shared<std::binary_semaphore>(0);
  ++num_running;
  {
    const std::lock_guard lock(state_->mutex);
    state_->calls.push_back([call = std::move(call), is_done]() mutable {
      waiter = is_done.get();
      call();
      call = nullptr;
      stop_waiting_for_this_call();
      --num_running;
    });
    if (state_->calls.size() > state_->num_idle) {
      // Nobody joins the thread: what it runs may wait for Python's lock, which the thread that ends the group may
      // hold.
      std::thread([state = state_] { work(*state); }).detach();
    } else {
      state_->news.notify_one();
    }
  }
  static_cast<void>(is_done->try_acquire_for(kPatience));
}

bool Callbacks::wait_for_all(std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (num_running > 0) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void Callbacks::work(State& state) {
  std::unique_lock lock(state.mutex);
  while (true) {
    ++state.num_idle;
    state.news.wait(lock, [&] { return state.is_over || !state.calls.empty(); });
    --state.num_idle;
    if (state.calls.empty()) return;
    auto call = std::move(state.calls.front());
    state.calls.pop_front();
    lock.unlock();
    call();
    call = nullptr;
    lock.lock();
  }
}

SharedWork::SharedWork(std::shared_ptr<Engine> engine, std::shared_ptr<Transfer> transfer, SharedWorkOptions options)
    : Work(options.rank, options.type, options.title, options.inputs),
      engine_(std::move(engine)),
      options_(std::move(options)),
      transfer_(std::move(transfer)) {}

c10::intrusive_ptr<SharedWork> SharedWork::start(std::shared_ptr<Engine> engine, std::shared_ptr<Transfer> given,
                                                 SharedWorkOptions options) {
  stop_waiting_for_this_call();  // it may wait for this collective
  auto work = c10::make_intrusive<SharedWork>(std::move(engine), std::move(given), std::move(options));
  auto& transfer = *work->transfer_;
  transfer.deadline = Clock::now() + work->options_.timeout;
  work->self_ = work;  // a function with a pointer of its own would be on the heap
  transfer.on_end = [one = work.get()](std::exception_ptr error) {
    const Running running;  // until `kept` is gone, which whoever waits for the future does not wait for
    const auto kept = std::exchange(one->self_, {});
    one->end(std::move(error));
  };
  work->engine_->start(work->transfer_, work->options_.driver);
  return work;
}

/// After a loss that is forgiven. What was to be gathered is as if all ranks had given the same.
void SharedWork::give_own_to_all() noexcept {
  try {
    const at::AutoDispatchBelowADInplaceOrView below;
    if (options_.inputs.empty()) return;
    const auto& own = options_.inputs[0];
    for (const auto& list : options_.lists) {
      for (const auto& output : list) {
        if (output.numel() == own.numel()) output.copy_(own.view(output.sizes()));
      }
    }
    if (options_.type == c10d::OpType::_ALLGATHER_BASE && own.numel() > 0) {
      options_.outputs.at(0).view({-1, own.numel()}).copy_(own.reshape({1, -1}));
    }
  } catch (const std::exception&) {  // they have no meaning in any case
  }
}

void SharedWork::end(std::exception_ptr error) {
  const bool is_forgiven = error && options_.losses && options_.losses->forgives(error);
  if (is_forgiven) {
    error = nullptr;
    give_own_to_all();
  }
  try {
    if (!is_forgiven && !error && options_.after) {
      const at::AutoDispatchBelowADInplaceOrView below;  // this thread knows nothing of the caller's no_grad
      options_.after();
    }
  } catch (...) {
    error = std::current_exception();
  }
  finish(std::move(error));
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(future_mutex_);
    has_ended_ = true;
    future = future_;
  }
  if (future == nullptr) return;
  if (engine_->is_own_thread()) {
    options_.callbacks->run(completion_of(std::move(future)));
  } else {
    completion_of(std::move(future))();
  }
}

std::function<void()> SharedWork::completion_of(c10::intrusive_ptr<c10::ivalue::Future> future) const {
  const auto value = options_.lists.empty() ? c10::IValue(options_.outputs) : c10::IValue(options_.lists);
  return [future = std::move(future), error = exception(), value] {
    error ? future->setError(error) : future->markCompleted(value);
  };
}

bool SharedWork::isCompleted() { return engine_->poll(transfer_); }

bool SharedWork::wait(std::chrono::milliseconds timeout) {
  const auto until = timeout == kNoTimeout ? Clock::time_point::max() : Clock::now() + timeout;
  TORCH_CHECK(engine_->wait(transfer_, until), "Operation timed out!");  // as c10d::Work says it
  if (const auto error = exception()) {
    if (!engine_->is_own_thread()) engine_->wait_for_all(kPatience);
    std::rethrow_exception(error);
  }
  return true;
}

int SharedWork::sourceRank() const {
  TORCH_CHECK(transfer_->message && !transfer_->message->is_sent, "only a message that was received has a sender");
  return static_cast<int>(transfer_->message->peer);
}

std::vector<at::Tensor> SharedWork::result() { return options_.outputs; }

c10::intrusive_ptr<c10::ivalue::Future> SharedWork::getFuture() {
  {
    const std::lock_guard lock(future_mutex_);
    if (future_) return future_;
    const auto tensors = c10::ListType::create(c10::TensorType::get());
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        options_.lists.empty() ? c10::TypePtr(tensors) : c10::TypePtr(c10::ListType::create(tensors)));
    if (!has_ended_) {
      engine_->hand_over(*transfer_);
      return future_;
    }
  }
  completion_of(future_)();
  return future_;
}

}  // namespace yoke::dist
