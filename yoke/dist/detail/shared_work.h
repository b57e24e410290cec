// yoke/dist/detail/shared_work.h -- a collective or a message in shared memory, as c10d shows it to callers.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "yoke/dist/shared/engine.h"

namespace yoke::dist {

/// The threads that complete futures. What follows a future may wait for other collectives, so the engine's own thread,
/// which those need, must not run it: DDP's hook PowerSGD waits so.
class Callbacks {
 public:
  Callbacks();
  ~Callbacks();
  Callbacks(const Callbacks&) = delete;
  Callbacks& operator=(const Callbacks&) = delete;

  /// Runs `call` at once, on a thread that has nothing to do or on a new one, and waits a little for its end.
  void run(std::function<void()> call);

  /// Waits until all calls of this process have ended, and the ends of collectives that have begun. Returns false if
  /// that takes longer. Python aborts a process that exits while a thread uses its objects.
  static bool wait_for_all(std::chrono::milliseconds patience);

 private:
  struct State;
  static void work(State& state);

  const std::shared_ptr<State> state_;  ///< The threads have it, too.
};

/// How it begins, except what is exchanged.
struct SharedWorkOptions {
  int rank = 0;
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = nullptr;      ///< In profiles.
  std::vector<at::Tensor> inputs;   ///< Kept alive.
  std::vector<at::Tensor> outputs;  ///< The result of the future.
  /// If not empty, the result of the future is this.
  std::vector<std::vector<at::Tensor>> lists;
  std::function<void()> after;  ///< Called when the exchange has succeeded, before anybody hears of it.
  std::chrono::milliseconds timeout{};
  shared::Driver driver = shared::Driver::kEngine;
  std::shared_ptr<Callbacks> callbacks;
  std::shared_ptr<const GroupLosses> losses = {};  ///< Null if a loss is never forgiven.
};

class SharedWork : public c10d::Work {
 public:
  static c10::intrusive_ptr<SharedWork> start(std::shared_ptr<shared::Engine> engine,
                                              std::shared_ptr<shared::Transfer> given, SharedWorkOptions options);
  SharedWork(std::shared_ptr<shared::Engine> engine, std::shared_ptr<shared::Transfer> transfer,
             SharedWorkOptions options);

  bool isCompleted() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  void end(std::exception_ptr error);
  void give_own_to_all() noexcept;
  /// What completes the future. It does not own this work.
  std::function<void()> completion_of(c10::intrusive_ptr<c10::ivalue::Future> future) const;

  const std::shared_ptr<shared::Engine> engine_;
  SharedWorkOptions options_;
  std::shared_ptr<shared::Transfer> transfer_;
  c10::intrusive_ptr<SharedWork> self_;  ///< Until it has ended.
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  ///< Null until somebody asks for it.
  bool has_ended_ = false;                          ///< Guarded by future_mutex_, like future_.
};

}  // namespace yoke::dist
