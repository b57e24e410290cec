#include "yoke/train/precision/autocast.h"

#include <ATen/autocast_mode.h>

#include "yoke/base/error.h"
#include "yoke/dist/plug.h"

namespace yoke::train {

Autocast::Autocast(const AutocastOptions& options)
    : device_type_(options.device_type),
      outer_dtype_(at::autocast::get_autocast_dtype(options.device_type)),
      outer_enabled_(at::autocast::is_autocast_enabled(options.device_type)),
      changes_dtype_(options.enabled && options.dtype != outer_dtype_) {
  if (options.enabled && options.dtype != at::kBFloat16 && options.dtype != at::kHalf) {
    throw Error(ErrorCode::kInvalidArgument, "Autocast to {}: only BFloat16 and Half are lower precision",
                c10::toString(options.dtype));
  }
  if (changes_dtype_) at::autocast::clear_cache();  // the cache finds a cast by its weight and ignores the dtype
  at::autocast::set_autocast_enabled(device_type_, options.enabled);
  // A scope with `enabled = false` does not change this dtype, which stays that of the cached casts. So an inner scope
  // can compare its own dtype with it.
  if (options.enabled) at::autocast::set_autocast_dtype(device_type_, options.dtype);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0 || changes_dtype_) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(device_type_, outer_dtype_);
  at::autocast::set_autocast_enabled(device_type_, outer_enabled_);
}

bool has_fast_bfloat16(c10::Device device) {
  if (device.is_cpu()) {
#ifdef __x86_64__
    return __builtin_cpu_supports("avx512bf16");  // CPUs with AMX have this too; Clang 14 cannot test for AMX
#else
    return false;
#endif
  }
  const auto* plug = dist::loaded_plug();
  return plug != nullptr && plug->device_type == device.type() && plug->has_bfloat16(device.index());
}

}  // namespace yoke::train
