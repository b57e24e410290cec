// yoke/train/watch/step_end.h -- tells observers when a step of the training ends, without any change to the program.
#pragma once

#include <cstdint>
#include <memory>

namespace yoke::train {

/// Something that measures the steps of this process, such as a profiler.
class StepObserver {
 public:
  virtual ~StepObserver() = default;

  /// Called at the end of step number `step`, from 0, on the thread that called the optimizer. Must not throw.
  virtual void on_step(int64_t step) = 0;
};

/// Adds an observer for the rest of the process. The observer is destroyed when the process exits normally. May be
/// called on any thread.
void add_step_observer(std::unique_ptr<StepObserver> observer);

/// Every optimizer calls this function with its address at the end of its step(). An optimizer class of the program
/// must call it too. A program with several optimizers, such as a GAN, calls step() of each optimizer once in a
/// training step. The optimizer that stepped first then ends the training step. If another optimizer steps twice in
/// between, it takes over this role.
///
/// The first call adds the observers that the environment asks for.
void end_step(const void* optimizer);

/// The number of calls of end_step() on this thread, which tells whether a step was made in between.
int64_t num_steps_ended();

}  // namespace yoke::train
