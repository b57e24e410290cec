// yoke/train/step_end.h -- tells observers when a step of the training ends, without any change to the program.
#pragma once

#include <cstdint>
#include <memory>

namespace yoke::train {

/// Something that measures the steps of this process, such as a profiler.
class StepObserver {
 public:
  virtual ~StepObserver() = default;

  /// Called at the end of step number `step`, from 0, on the thread that called the optimizer. It must not throw.
  virtual void end_step(int64_t step) = 0;
};

/// Adds an observer for the rest of the process. It is destroyed when the process exits normally. May be called on any
/// thread.
void add_step_observer(std::unique_ptr<StepObserver> observer);

/// Called by each optimizer at the end of its step(); a program with an optimizer of its own calls it too, with the
/// address of that optimizer. A program that has several optimizers, such as a GAN, steps each of them once in a step:
/// the first optimizer that steps ends the training's step, and if another one steps twice in between, that one
/// replaces it.
///
/// The first call adds the observers that the environment asks for.
void end_step(const void* optimizer);

}  // namespace yoke::train
