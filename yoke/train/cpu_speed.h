// yoke/train/cpu_speed.h -- settings of the whole process that training on a CPU gains from. Call them first in main.
#pragma once

namespace yoke::train {

/// Lets the CPU treat numbers under 1e-38 as 0: they appear once a training has converged and make its steps several
/// times slower. It holds for the calling thread and those it starts later: call it first in main.
/// False when this CPU cannot.
bool flush_denormals();

/// Tells glibc's malloc to keep what is freed and to serve large tensors from the heap too. By default every activation
/// of a step is mapped, zeroed page by page by the kernel, and unmapped again: a quarter to a third of the step of a
/// small network. Resident memory then stays at the peak. An environment that sets MALLOC_ variables is left to decide.
/// False where malloc is not glibc's.
bool keep_freed_memory();

}  // namespace yoke::train
