// fakes/tensor_bytes.h -- how much memory the CPU tensors of this process hold.
#pragma once

#include <cstdint>

namespace yoke::fakes {

/// Puts a counter in front of libtorch's CPU allocator, for the rest of the process. Before other threads allocate.
void count_tensor_bytes();

int64_t tensor_bytes();       ///< Held now, of what was allocated since.
int64_t peak_tensor_bytes();  ///< The most at once, since the last reset.
void reset_peak_tensor_bytes();

}  // namespace yoke::fakes
