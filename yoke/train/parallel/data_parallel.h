// yoke/train/parallel/data_parallel.h -- one process with several devices. Each device has a replica of the model and a
// thread.
//
//     DataParallel parallel(model.ptr(), try_all_gpus());
//     auto loss = loss_of(parallel.forward(x), y);  // x [batch, ...], split among the devices
//     loss.backward();                              // gradients arrive in the model's own parameters
//     optimizer.step();
//
// DistributedDataParallel is faster if ranks can be started (docs/data-parallel.md). This class needs no launcher.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "yoke/train/device/devices.h"

namespace yoke::train {

/// The part of DataParallel that does not depend on the type of the model.
class Replicas {
 public:
  using Tensors = std::vector<at::Tensor>;
  /// Makes a module of the same structure as the model, with any values, on any device.
  using Make = std::function<std::shared_ptr<torch::nn::Module>()>;

  Replicas(std::shared_ptr<torch::nn::Module> model, std::vector<c10::Device> devices, const Make& make);
  ~Replicas();
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  Tensors run(const std::function<Tensors(torch::nn::Module& replica, const Tensors& inputs)>& function,
              const Tensors& inputs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Like torch.nn.DataParallel: each forward copies the model's parameters and buffers to the replicas, splits the
/// inputs along dimension 0, runs each part on its device in its own thread, and joins the outputs on the first device.
/// Backward adds the replicas' gradients to the model's. Forward may be called several times
/// before backward. NoGradGuard and Autocast work: the threads inherit them, and the current streams, from the caller.
///
/// Replicas     are made once. The first device runs the model itself, so the model's batch-norm statistics are those
///              of the batch's first part, as in Python. Statistics of replicas are dropped. Frozen parameters get no
///              gradient. Replicas adopt the model's changes by train(), eval() and requires_grad, but no other changes
///              of its options.
/// One device   the model itself runs: the bits are those of the model without DataParallel, and nothing is copied.
/// Devices      a device may be named more than once. Each GPU draws its dropout masks from its own generator. Replicas
///              on one device share its generator in an undefined order.
/// Randomness   construction does not change the generators of its devices.
/// Threads      one forward at a time.
/// Errors       kInvalidArgument: the list of devices is empty, or a replica differs from the model (names the first
///              tensor). An exception of a replica is rethrown with its device's name, after all threads have finished.
/// Source       torch/nn/parallel/data_parallel.py, but not torch::nn::parallel::data_parallel, which clones the model
///              in every call.
template <class M>
class DataParallel {
 public:
  using Tensors = Replicas::Tensors;

  /// Moves the model to the first device. Makes replicas by `model->clone()`, so M must be a torch::nn::Cloneable, like
  /// all of libtorch's layers and Sequential.
  explicit DataParallel(std::shared_ptr<M> model, std::vector<c10::Device> devices = try_all_gpus())
      : model_(std::move(model)), replicas_(model_, std::move(devices), [this] { return model_->clone(); }) {}

  /// For a model that cannot clone itself; `make` builds a module of the same structure.
  DataParallel(std::shared_ptr<M> model, std::vector<c10::Device> devices,
               const std::function<std::shared_ptr<M>()>& make)
      : model_(std::move(model)), replicas_(model_, std::move(devices), make) {}

  /// `input` is [batch, ...] on any device. Returns model.forward(input) on the first device. If the batch does not
  /// divide evenly, the last device gets less; if it is smaller than the number of devices, some are idle.
  at::Tensor forward(const at::Tensor& input) {
    return run([](M& replica, const Tensors& inputs) { return Tensors{replica.forward(inputs.front())}; }, {input})
        .front();
  }

  /// Runs any function of a replica and its part of the inputs. So the loss can also be computed on all devices. All
  /// inputs are split in the same way, and outputs are joined along dimension 0; scalars become a vector with one
  /// element per part. Without inputs, only the model itself is run.
  Tensors run(const std::function<Tensors(M& replica, const Tensors& inputs)>& function, const Tensors& inputs) {
    return replicas_.run([&function](torch::nn::Module& replica,
                                     const Tensors& part) { return function(static_cast<M&>(replica), part); },
                         inputs);
  }

  M& model() { return *model_; }

 private:
  std::shared_ptr<M> model_;
  Replicas replicas_;
};

}  // namespace yoke::train
