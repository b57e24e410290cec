#include "yoke/train/cpu_speed.h"

#include <ATen/Context.h>
#include <malloc.h>

#include <cstdlib>

#include "yoke/train/detail/own_kernels.h"

namespace yoke::train {
namespace {

[[maybe_unused]] const bool kHasOwnKernels = detail::replace_kernels();

}  // namespace

bool flush_denormals() { return at::globalContext().setFlushDenormal(true); }

bool keep_freed_memory() {
#ifdef M_MMAP_THRESHOLD
  if (std::getenv("MALLOC_MMAP_THRESHOLD_") != nullptr || std::getenv("MALLOC_TRIM_THRESHOLD_") != nullptr) return true;
  constexpr int kOneGiB = 1 << 30;
  return mallopt(M_MMAP_THRESHOLD, kOneGiB) == 1 && mallopt(M_TRIM_THRESHOLD, kOneGiB) == 1;
#else
  return false;
#endif
}

}  // namespace yoke::train
