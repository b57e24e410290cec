// yoke/train/device/devices.h -- which devices there are, and keeping a model and its data on one of them.
//
//     const auto device = try_gpu();                 // the CPU where there is no GPU
//     to(*model, device);
//     for (auto [x, y] : batches) loss_of(model->forward(to(x, device)), to(y, device)).backward();
//
// GPUs are those that the plug shows (yoke/dist/plug.h): without one nothing of a GPU's is loaded, and all of this
// works on the CPU. Parameters stay where they are while they are trained: optimizers, clipping and averages read and
// write them on their device, and only what asks for a number (`item`) or a CPU tensor waits for the device.
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

/// GPUs that this process may use.
int64_t num_gpus();

/// GPU `i`, or the CPU when there are not that many.
/// Errors  kInvalidArgument for a negative `i`.
c10::Device try_gpu(int64_t i = 0);

/// All GPUs in their order; the CPU alone when there is none.
std::vector<c10::Device> try_all_gpus();

/// What the maker calls it: "NVIDIA H100 80GB HBM3", "AMD EPYC 9B14"; "cpu" or "cuda:0" where that is not known.
std::string device_name(c10::Device device);

/// `tensor` itself when it is on `device` already (no copy, the same storage), else a copy there, differentiable. A GPU
/// without a number is the current one. The copy from pinned memory to a GPU is asynchronous, in the order of its
/// stream.
at::Tensor to(const at::Tensor& tensor, c10::Device device);

/// Moves parameters, their gradients and buffers in place: references to them, in optimizers too, stay good. What is
/// there already is not touched. An optimizer's own state does not move: move the model before making the optimizer.
void to(torch::nn::Module& module, c10::Device device);

/// The one device of all parameters and buffers; none when there are none.
/// Errors  kFailedPrecondition naming the first two that are apart.
std::optional<c10::Device> device_of(const torch::nn::Module& module);

/// Moves a module to its input's device. Cheap when it is there: one look at each parameter.
void follow(torch::nn::Module& module, const at::Tensor& input);

/// Errors  kInvalidArgument naming both sides and where each is, unless both are on one device. A CPU scalar (no
/// dimensions) goes with any device, as it does in libtorch's operators.
void check_same_device(std::string_view name_a, const at::Tensor& a, std::string_view name_b, const at::Tensor& b);

}  // namespace yoke::train
