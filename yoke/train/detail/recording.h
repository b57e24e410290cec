// yoke/train/detail/recording.h -- what code inside of a step tells the recording of that step (record/recorded.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKey.h>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace yoke::train::detail {

/// A function whose whole work is one part of a recorded step. It runs again in each replay, so it reads the numbers
/// that are valid then, such as a learning rate. Operators that it calls are not recorded.
struct HostCall {
  std::string name;
  std::vector<at::Tensor> tensors;     ///< Tensors that `run` reads besides gradients; undefined ones stay undefined.
  std::vector<at::Tensor> parameters;  ///< Leaves whose gradients, as parameter.grad(), `run` reads or changes.
  std::function<void(const std::vector<at::Tensor>& tensors)> run;
  /// All tensors that `run` changes besides gradients, and that no operator of the step writes to. May be empty.
  std::function<std::vector<at::Tensor>()> written;
  /// Expires with the object whose function `run` is, if that may end before the recorded step.
  std::optional<std::weak_ptr<const void>> owner = std::nullopt;
};

/// The collectives of one object in a recorded step, such as those of a DistributedDataParallel. A replay starts the
/// same ones, in the same order, as the step itself would at that moment. So ranks that replay a step, ranks that run
/// it, and ranks that record or compare it fit together.
class StepCommunication {
 public:
  virtual ~StepCommunication() = default;

  /// Whether a step that is called now would communicate in the same places as the recorded one.
  virtual bool fits() const = 0;
  /// Why the recorded collectives are no longer those of the step; empty if they are.
  virtual std::string why_stale() const = 0;
  /// If an all-reduce of `tensor`, which the step is about to start, is one of this object's: the call that starts it
  /// in a replay.
  virtual std::optional<HostCall> all_reduce(const at::Tensor& tensor) = 0;
  /// Tells the other ranks why this rank does not finish a replay.
  virtual void report(const std::exception& error) const noexcept = 0;
};

/// A recording that is in progress.
class StepRecording {
 public:
  virtual ~StepRecording() = default;
  virtual void call(HostCall call) = 0;  ///< Runs the function, and makes it a part of the step.
  virtual void add(HostCall call) = 0;   ///< Makes it a part of the step. The caller has done its work already.

  /// The step cannot be recorded. `reason` completes the sentence "The step cannot be recorded: ".
  virtual void refuse(const std::string& reason) = 0;
  /// This call of the step is not recorded, because it sets up what later ones find.
  virtual void postpone() = 0;
  /// Code of the step reads, sets or drops the gradient of this leaf, which need not take an operator.
  virtual void use_gradient(const at::Tensor& parameter) = 0;
  /// An operator of c10d is about to communicate.
  virtual void communicate(const std::string& op, const at::Tensor& tensor) = 0;

  /// The communication of an object in this step; null before set_communication().
  std::shared_ptr<StepCommunication> communication_of(const void* owner) const {
    for (const auto& [known, communication] : communications_) {
      if (known == owner) return communication;
    }
    return nullptr;
  }
  void set_communication(const void* owner, std::shared_ptr<StepCommunication> communication) {
    communications_.emplace_back(owner, std::move(communication));
  }

 protected:
  std::vector<std::pair<const void*, std::shared_ptr<StepCommunication>>> communications_;
};

/// The dispatch key that shows operators to a recording. Operators under an ExcludeDispatchKeyGuard of it are no part
/// of the step.
inline constexpr auto kRecorderKey = c10::DispatchKey::Fake;

/// The recording on this thread; null if there is none.
inline StepRecording*& recording_on_this_thread() {
  thread_local StepRecording* current = nullptr;
  return current;
}

/// For a call, as "SGD" and "set_lr(lr)", that changes numbers of the program, which a replay would not do again.
inline void refuse_to_record(std::string_view object, const char* call, const char* instead) {
  if (auto* recording = recording_on_this_thread()) {
    recording->refuse(std::string(object) + "." + call +
                      " runs when the step is recorded, and would not run in its replays: " + instead);
  }
}

}  // namespace yoke::train::detail
