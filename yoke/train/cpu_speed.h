// yoke/train/cpu_speed.h -- settings of the process that make training on a CPU faster. Call them first in main.
#pragma once

namespace yoke::train {

/// Makes the CPU treat numbers below 1e-38 as 0. Such numbers appear when a training has converged, and make its steps
/// several times slower. The setting holds for the calling thread and for threads that it starts later. Returns false
/// if this CPU cannot do it.
bool flush_denormals();

/// Makes glibc's malloc keep freed memory and serve large tensors from the heap too. By default every activation of a
/// step is mapped, zeroed page by page by the kernel, and unmapped again; this takes a quarter to a third of the step
/// of a small network. With this setting, resident memory stays at its peak. If the environment sets MALLOC_ variables,
/// nothing is changed. Returns false if malloc is not glibc's.
bool keep_freed_memory();

}  // namespace yoke::train
