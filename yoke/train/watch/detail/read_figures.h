// yoke/train/watch/detail/read_figures.h -- reads values that wait on their devices.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace yoke::train::detail {

/// A copy of a scalar on its device, float64 [1], that read_figures() takes. Does not wait for the device.
/// Errors  kInvalidArgument: `value` is not a tensor of one real element; `name` is that in the message.
at::Tensor waiting_scalar(const std::string& name, const at::Tensor& value);
at::Tensor waiting_scalar(double value);

/// The values of each tensor (float64, one dimension), read by one copy from each device. Waits for the devices.
std::vector<std::vector<double>> read_figures(const std::vector<at::Tensor>& figures);

}  // namespace yoke::train::detail
