// fakes/tensor_bytes.h -- counts the memory of this process's CPU tensors.
#pragma once

#include <cstdint>

namespace yoke::fakes {

/// Puts a counter in front of libtorch's CPU allocator for the rest of the process. REQUIRES: no other thread allocates
/// tensors yet.
void count_tensor_bytes();

int64_t tensor_bytes();       ///< Bytes held now in tensors allocated after count_tensor_bytes().
int64_t peak_tensor_bytes();  ///< The most bytes held at once since the last reset.
void reset_peak_tensor_bytes();

}  // namespace yoke::fakes
