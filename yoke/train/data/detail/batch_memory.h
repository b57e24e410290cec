// yoke/train/data/detail/batch_memory.h -- the two kinds of memory for batches. Internal.
#pragma once

#include <memory>

#include "yoke/train/data/source.h"

namespace yoke::train::detail {

/// Allocates CPU memory. Keeps up to `max_kept` blocks of destroyed tensors for later tensors.
std::shared_ptr<BatchMemory> batch_memory(int64_t max_kept);

/// Allocates pinned memory, from which a GPU copies without blocking.
std::shared_ptr<BatchMemory> pinned_batch_memory();

}  // namespace yoke::train::detail
