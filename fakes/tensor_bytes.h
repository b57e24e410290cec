// fakes/tensor_bytes.h -- counts the memory of this process's CPU tensors.
#pragma once

#include <cstdint>

namespace yoke::fakes {

/// Counts the allocations of libtorch's CPU allocator until the process ends. REQUIRES: no other thread allocates
/// tensors yet.
void count_tensor_bytes();

int64_t tensor_bytes();       ///< Bytes that tensors allocated after count_tensor_bytes() have now.
int64_t peak_tensor_bytes();  ///< The largest number of bytes at one time since the last reset.
void reset_peak_tensor_bytes();

}  // namespace yoke::fakes
