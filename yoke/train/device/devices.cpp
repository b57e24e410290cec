#include "yoke/train/device/devices.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/module.h>

#include <fstream>

#include "yoke/base/error.h"
#include "yoke/dist/plug.h"

namespace yoke::train {
namespace {

c10::Device with_index(c10::Device device) {
  if (device.is_cpu()) return c10::kCPU;  // "cpu:0" and "cpu" differ as Device values, but mean the same memory
  if (device.has_index() || device.is_meta()) return device;
  return c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      const auto start = line.find(": ");
      if (start != std::string::npos) return line.substr(start + 2);
    }
  }
  return "cpu";
}

// Moves the data but keeps the tensor object, so references to a parameter stay valid.
void move(at::Tensor tensor, c10::Device device) {
  if (!tensor.defined() || tensor.device() == device) return;
  const at::NoGradGuard no_grad;
  const auto gradient = tensor.is_leaf() ? tensor.grad() : at::Tensor();
  if (gradient.defined()) tensor.mutable_grad() = at::Tensor();  // a gradient must be on its tensor's device
  tensor.set_data(tensor.to(device));
  if (gradient.defined()) tensor.mutable_grad() = gradient.to(device);
}

struct NamedDevice {
  std::string name;
  c10::Device device;
};

}  // namespace

int64_t num_gpus() {
  const auto* plug = dist::loaded_plug();
  return plug == nullptr ? 0 : plug->num_devices();
}

c10::Device try_gpu(int64_t i) {
  if (i < 0) throw Error(ErrorCode::kInvalidArgument, "try_gpu: GPU {}; they are counted from 0", i);
  if (i >= num_gpus()) return c10::Device(c10::kCPU);
  return {dist::loaded_plug()->device_type, static_cast<c10::DeviceIndex>(i)};
}

std::vector<c10::Device> try_all_gpus() {
  std::vector<c10::Device> devices;
  for (int64_t i = 0, count = num_gpus(); i < count; ++i) devices.push_back(try_gpu(i));
  if (devices.empty()) devices.emplace_back(c10::kCPU);
  return devices;
}

std::string device_name(c10::Device device) {
  if (device.is_cpu()) return cpu_name();
  const auto* plug = dist::loaded_plug();
  if (plug == nullptr || plug->device_type != device.type()) return device.str();
  device = with_index(device);
  return device.index() < plug->num_devices() ? plug->device_name(device.index()) : device.str();
}

at::Tensor to(const at::Tensor& tensor, c10::Device device) {
  device = with_index(device);
  if (tensor.device() == device) return tensor;
  return tensor.to(device, /*non_blocking=*/tensor.is_cpu() && tensor.is_pinned());
}

void to(torch::nn::Module& module, c10::Device device) {
  device = with_index(device);
  for (const auto& parameter : module.parameters()) move(parameter, device);
  for (const auto& buffer : module.buffers()) move(buffer, device);
}

std::optional<c10::Device> device_of(const torch::nn::Module& module) {
  std::optional<NamedDevice> first;
  const auto look = [&first](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (!first) {
      first = NamedDevice{name, tensor.device()};
    } else if (tensor.device() != first->device) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "the module is on two devices: '{}' is on {}, '{}' on {}; move all of it with to(module, device)",
                  first->name, first->device.str(), name, tensor.device().str());
    }
  };
  for (const auto& item : module.named_parameters()) look(item.key(), item.value());
  for (const auto& item : module.named_buffers()) look(item.key(), item.value());
  return first ? std::optional(first->device) : std::nullopt;
}

void follow(torch::nn::Module& module, const at::Tensor& input) { to(module, input.device()); }

void check_same_device(std::string_view name_a, const at::Tensor& a, std::string_view name_b, const at::Tensor& b) {
  const auto goes_with_all = [](const at::Tensor& tensor) { return tensor.is_cpu() && tensor.dim() == 0; };
  if (a.device() == b.device() || goes_with_all(a) || goes_with_all(b)) return;
  throw Error(ErrorCode::kInvalidArgument, "'{}' is on {}, '{}' on {}: move one with to(tensor, device)", name_a,
              a.device().str(), name_b, b.device().str());
}

}  // namespace yoke::train
