#include "yoke/train/checkpoint/async_saver.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "yoke/base/error.h"

namespace yoke::train {
namespace {

using Clock = std::chrono::steady_clock;

/// A buffer for a tensor: contiguous, pinned if it receives from a GPU. `old` when it fits.
at::Tensor buffer_for(const at::Tensor& tensor, const at::Tensor& old) {
  const bool pinned = tensor.is_cuda();
  if (old.defined() && old.layout() == at::kStrided && old.sizes() == tensor.sizes() &&
      old.scalar_type() == tensor.scalar_type() && (!pinned || old.is_pinned())) {
    return old;
  }
  return at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).pinned_memory(pinned));
}

}  // namespace

struct AsyncSaver::Impl {
  CheckpointFolder folder;
  Warn warn;
  CheckpointState copy;  // the writer's while it runs
  std::thread writer;
  std::exception_ptr error;  // the writer's until it is joined

  mutable std::mutex mutex;
  SaveProgress progress;  // under the mutex
  Clock::time_point writing_since;

  void take_copy(const CheckpointState& state) {
    const c10::NoGradGuard no_grad;
    TensorMap old;
    old.swap(copy.tensors);
    std::vector<at::Device> devices;
    for (const auto& [name, tensor] : state.tensors) {
      if (!tensor.defined() || tensor.layout() != at::kStrided) {
        copy.tensors.emplace(name, tensor);  // which the format refuses, by name
        continue;
      }
      const auto found = old.find(name);
      const auto buffer = buffer_for(tensor, found == old.end() ? at::Tensor() : found->second);
      buffer.copy_(tensor.detach(), /*non_blocking=*/true);
      copy.tensors.emplace(name, buffer);
      if (!tensor.is_cpu() && std::ranges::find(devices, tensor.device()) == devices.end()) {
        devices.push_back(tensor.device());
      }
    }
    for (const auto& device : devices) {
      const c10::impl::VirtualGuardImpl guard(device.type());
      guard.getStream(device).synchronize();
    }
    copy.metadata = state.metadata;
  }

  void write(int64_t step) noexcept {
    try {
      folder.save(step, copy, [&](int64_t written_bytes, int64_t num_bytes) {
        const std::lock_guard lock(mutex);
        progress.written_bytes = written_bytes;
        progress.num_bytes = num_bytes;
      });
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    progress.writing = Clock::now() - writing_since;
    progress.done = true;
  }

  void join() {
    if (writer.joinable()) writer.join();
  }

  void rethrow() {
    if (const auto failed = std::exchange(error, nullptr)) std::rethrow_exception(failed);
  }
};

AsyncSaver::AsyncSaver(CheckpointFolder folder, Warn warn)
    : impl_(new Impl{.folder = std::move(folder), .warn = std::move(warn)}) {
  impl_->progress.done = true;
}

AsyncSaver::~AsyncSaver() {
  impl_->join();
  if (!impl_->error) return;
  try {
    impl_->rethrow();
  } catch (const std::exception& error) {
    try {
      impl_->warn(fmt::format("a checkpoint was not written: {}", error.what()));
    } catch (...) {  // a destructor has nobody left to tell
    }
  }
}

void AsyncSaver::save(int64_t step, const CheckpointState& state) {
  const auto begin = Clock::now();
  finish();
  impl_->take_copy(state);
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->writing_since = Clock::now();
    impl_->progress = {.step = step, .held = impl_->writing_since - begin};
  }
  try {
    impl_->writer = std::thread([impl = impl_.get(), step] { impl->write(step); });
  } catch (const std::system_error& error) {
    const std::lock_guard lock(impl_->mutex);
    impl_->progress.done = true;
    throw Error(ErrorCode::kUnavailable, "saving step {}: no thread to write it: {}", step, error.what());
  }
}

void AsyncSaver::finish() {
  impl_->join();
  impl_->rethrow();
}

bool AsyncSaver::busy() const {
  const std::lock_guard lock(impl_->mutex);
  return !impl_->progress.done;
}

SaveProgress AsyncSaver::progress() const {
  const std::lock_guard lock(impl_->mutex);
  auto progress = impl_->progress;
  if (!progress.done) progress.writing = Clock::now() - impl_->writing_since;
  return progress;
}

}  // namespace yoke::train
