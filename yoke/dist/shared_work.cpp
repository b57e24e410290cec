#include "yoke/dist/detail/shared_work.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <utility>

namespace yoke::dist {

using shared::Engine;
using shared::Transfer;

SharedWork::SharedWork(std::shared_ptr<Engine> engine, std::shared_ptr<Transfer> transfer, SharedWorkOptions options)
    : Work(options.rank, options.type, options.title, options.inputs),
      engine_(std::move(engine)),
      options_(std::move(options)),
      transfer_(std::move(transfer)) {}

c10::intrusive_ptr<SharedWork> SharedWork::start(std::shared_ptr<Engine> engine, std::shared_ptr<Transfer> given,
                                                 SharedWorkOptions options) {
  auto work = c10::make_intrusive<SharedWork>(std::move(engine), std::move(given), std::move(options));
  auto& transfer = *work->transfer_;
  transfer.deadline = Clock::now() + work->options_.timeout;
  transfer.on_end = [work](std::exception_ptr error) { work->end(std::move(error)); };
  work->engine_->start(work->transfer_, work->options_.driver);
  return work;
}

void SharedWork::end(std::exception_ptr error) {
  try {
    if (!error && options_.after) {
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
  if (future) complete(*future);
}

void SharedWork::complete(c10::ivalue::Future& future) const {
  if (const auto error = exception()) {
    future.setError(error);
  } else {
    future.markCompleted(options_.lists.empty() ? c10::IValue(options_.outputs) : c10::IValue(options_.lists));
  }
}

bool SharedWork::isCompleted() { return engine_->poll(transfer_); }

bool SharedWork::wait(std::chrono::milliseconds timeout) {
  const auto until = timeout == kNoTimeout ? Clock::time_point::max() : Clock::now() + timeout;
  TORCH_CHECK(engine_->wait(transfer_, until), "Operation timed out!");  // as c10d::Work says it
  if (const auto error = exception()) std::rethrow_exception(error);
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
  complete(*future_);
  return future_;
}

}  // namespace yoke::dist
