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
/// one drops the cached casts of the parameters, which would otherwise be stale and kept for ever.
/// Source  torch/amp/autocast_mode.py.
class Autocast {
 public:
  explicit Autocast(const AutocastOptions& options);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_type_;
  c10::ScalarType outer_dtype_;
  bool outer_enabled_;
};

/// Does this device multiply bfloat16 in hardware? On others it is emulated, and slower than float.
bool has_fast_bfloat16(c10::Device device);

}  // namespace yoke::train
