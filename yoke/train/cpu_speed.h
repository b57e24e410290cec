// yoke/train/cpu_speed.h -- settings of the process that make training on a CPU faster.
//
// A program that links these functions, or an optimizer, also has faster kernels for max_pool2d and dropout on the CPU,
// with the same bits as libtorch's (docs/optim.md).
#pragma once

namespace yoke::train {

/// Makes the CPU treat float numbers of magnitude below 1e-38 as 0. Such numbers appear when a training has converged,
/// and make each step several times slower. The setting holds for the calling thread and for threads that it starts
/// later. Returns false if this CPU has no such setting.
bool flush_denormals();

/// Makes glibc's malloc keep freed memory and serve large tensors from the heap too. By default malloc maps new pages
/// for every large activation, Linux zeroes these pages, and malloc unmaps them again. These system calls take a
/// quarter to a third of each step of a small network. With this setting, resident memory stays at its peak. If the
/// environment sets MALLOC_ variables, nothing changes. Returns false if malloc is not glibc's. Each Optimizer of
/// parameters on the CPU calls it.
bool keep_freed_memory();

}  // namespace yoke::train
