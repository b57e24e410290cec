// yoke/train/watch/detail/read_figures.h -- reads values that were kept on their devices.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace yoke::train::detail {

/// Copies a scalar on its device to a float64 [1] for read_figures(). Does not wait for the device.
/// Errors  kInvalidArgument, with `name` in the message: `value` is not a tensor of one real element.
at::Tensor waiting_scalar(const std::string& name, const at::Tensor& value);
at::Tensor waiting_scalar(double value);

/// The values of each tensor (float64, one dimension), read by one copy from each device. Waits for the devices.
std::vector<std::vector<double>> read_figures(const std::vector<at::Tensor>& figures);

}  // namespace yoke::train::detail
