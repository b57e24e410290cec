// yoke/train/device/devices.h -- finds devices, and keeps a model and its data on one of them.
//
//     const auto device = try_gpu();                 // the CPU if there is no GPU
//     to(*model, device);
//     for (auto [x, y] : batches) loss_of(model->forward(to(x, device)), to(y, device)).backward();
//
// The GPUs are those that the loaded plug provides (yoke/dist/plug.h). Without a plug, no GPU library is loaded, and
// all functions here work on the CPU. Parameters stay on their device while they are trained: optimizers, clipping and
// averages read and write them there. Only code that reads a number (`item`) or a CPU tensor waits for the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace torch::nn {
class Module;
}

namespace yoke::train {

/// The number of GPUs that this process may use.
int64_t num_gpus();

/// GPU `i`, or the CPU if there are not that many GPUs.
/// Errors  kInvalidArgument for a negative `i`.
c10::Device try_gpu(int64_t i = 0);

/// All GPUs in their order; if there are none, only the CPU.
std::vector<c10::Device> try_all_gpus();

/// The vendor's name: "NVIDIA H100 80GB HBM3", "AMD EPYC 9B14". If the name is not known, "cpu" or "cuda:0".
std::string device_name(c10::Device device);

/// Returns `tensor` itself if it is already on `device`, otherwise a differentiable copy there. A GPU without an index
/// means the current GPU. A copy from pinned memory to a GPU is asynchronous, in the order of its stream.
at::Tensor to(const at::Tensor& tensor, c10::Device device);

/// Moves parameters, their gradients and buffers in place, so that references to them, as in optimizers, stay valid.
/// Does not touch tensors that are already on `device`. An optimizer's state does not move: move the model before
/// constructing the optimizer.
void to(torch::nn::Module& module, c10::Device device);

/// The common device of all parameters and buffers; nullopt if there are none.
/// Errors  kFailedPrecondition naming the first two tensors on different devices.
std::optional<c10::Device> device_of(const torch::nn::Module& module);

/// Moves a module to its input's device. If the module is already on that device, only checks each parameter.
void follow(torch::nn::Module& module, const at::Tensor& input);

/// Errors kInvalidArgument, naming both tensors and their devices: the tensors are on different devices. A CPU scalar
/// (no
/// dimensions) matches any device, as in libtorch's operators.
void check_same_device(std::string_view name_a, const at::Tensor& a, std::string_view name_b, const at::Tensor& b);

}  // namespace yoke::train
