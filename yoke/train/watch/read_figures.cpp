#include "yoke/train/watch/detail/read_figures.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/Device.h>

#include <unordered_map>

#include "yoke/base/error.h"

namespace yoke::train::detail {

at::Tensor waiting_scalar(const std::string& name, const at::Tensor& value) {
  if (!value.defined() || value.numel() != 1 || value.is_complex()) {
    throw Error(ErrorCode::kInvalidArgument, "the scalar '{}' must be a tensor of one real element", name);
  }
  // Copies, because the caller may change the tensor before its value is read.
  return value.detach().reshape({1}).to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
}

at::Tensor waiting_scalar(double value) { return at::scalar_tensor(value, at::kDouble).reshape({1}); }

std::vector<std::vector<double>> read_figures(const std::vector<at::Tensor>& figures) {
  std::unordered_map<c10::Device, std::vector<at::Tensor>> of_device;
  for (const auto& tensor : figures) of_device[tensor.device()].push_back(tensor);
  std::unordered_map<c10::Device, at::Tensor> on_host;
  std::unordered_map<c10::Device, const double*> next;
  for (const auto& [device, tensors] : of_device) {
    on_host[device] = at::cat(tensors).cpu();
    next[device] = on_host[device].const_data_ptr<double>();
  }
  std::vector<std::vector<double>> values;
  values.reserve(figures.size());
  for (const auto& tensor : figures) {
    auto& from = next.at(tensor.device());
    values.emplace_back(from, from + tensor.numel());
    from += tensor.numel();
  }
  return values;
}

}  // namespace yoke::train::detail
