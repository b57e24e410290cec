// yoke/train/detail/recording.h -- what code inside of a step tells the recording of that step (record/recorded.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::train::detail {

/// A function whose whole work is one part of a recorded step. It runs again in each replay, so it reads the numbers
/// that are valid then, such as a learning rate. Operators that it calls are not recorded.
struct HostCall {
  std::string name;
  std::vector<at::Tensor> tensors;     ///< Tensors that `run` reads besides gradients; undefined ones stay undefined.
  std::vector<at::Tensor> parameters;  ///< Leaves whose gradients, as parameter.grad(), `run` reads or changes.
  std::function<void(const std::vector<at::Tensor>& tensors)> run;
  std::function<std::vector<at::Tensor>()> written;  ///< All tensors that `run` changes besides gradients.
};

/// A recording that is in progress.
class StepRecording {
 public:
  virtual ~StepRecording() = default;
  virtual void call(HostCall call) = 0;  ///< Runs the function, and makes it a part of the step.

  /// The step cannot be recorded. `reason` completes the sentence "The step cannot be recorded: ".
  virtual void refuse(const std::string& reason) = 0;
};

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
