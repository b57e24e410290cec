// yoke/train/precision/autocast.h -- a scope in which operations use lower precision where it is safe.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace yoke::train {

struct AutocastOptions {
  c10::DeviceType device_type = c10::DeviceType::CPU;
  c10::ScalarType dtype = c10::ScalarType::BFloat16;
  bool enabled = true;
};

/// torch.autocast as a scope of the calling thread: run forward and loss inside it, backward outside. The end of the
/// outermost scope drops the cached casts of the parameters; otherwise they would become stale and never be freed. A
/// nested scope with a different dtype drops them too; PyTorch would use casts of the outer dtype there.
///
/// Nesting  any depth and any device types. A nested scope with `enabled = false` runs in full precision.
/// Threads  each thread has its own state, but all threads of the process share one cache of casts. If threads share
///          parameters and use different dtypes at the same time, they get each other's casts.
/// Errors   kInvalidArgument for a dtype other than kBFloat16 and kHalf.
/// Source   torch/amp/autocast_mode.py.
class Autocast {
 public:
  explicit Autocast(const AutocastOptions& options);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_type_;
  c10::ScalarType outer_dtype_;
  bool outer_enabled_, changes_dtype_;
};

/// Returns whether this device multiplies bfloat16 in hardware. If not, bfloat16 is emulated, and slower than float.
bool has_fast_bfloat16(c10::Device device);

}  // namespace yoke::train
