// yoke/train/precision/autocast.h -- lower precision where it is safe, for the operations of a scope.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace yoke::train {

struct AutocastOptions {
  c10::DeviceType device_type = c10::DeviceType::CPU;
  c10::ScalarType dtype = c10::ScalarType::BFloat16;
  bool enabled = true;
};

/// torch.autocast as a scope of the calling thread: forward and loss inside it, backward outside. Leaving the outermost
/// one drops the cached casts of the parameters, which would otherwise be stale and kept for ever; so does a scope with
/// another dtype inside one, where PyTorch takes the casts of the outer dtype.
///
/// Nesting  any depth and device types; `enabled = false` inside is a scope in full precision.
/// Threads  the state is the thread's, the cache the process's. Threads that share parameters and use different dtypes
///          at one time would find each other's casts.
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

/// Does this device multiply bfloat16 in hardware? On others it is emulated, and slower than float.
bool has_fast_bfloat16(c10::Device device);

}  // namespace yoke::train
