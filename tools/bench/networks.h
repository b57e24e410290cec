// tools/bench/networks.h -- the networks that the exercises train, and their training steps.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "yoke/train/data/samples.h"
#include "yoke/train/optim/sgd.h"

namespace yoke::exercise {

/// The properties of the data and the device for a network.
struct NetworkOptions {
  std::string name = "mlp";           ///< "mlp", "cnn" or "small".
  std::vector<int64_t> sample_sizes;  ///< Sizes of one sample: [channels, height, width]; [length] for tokens.
  bool has_tokens = false;            ///< Samples are token numbers, and each token has a target.
  int64_t num_classes = 10;
  c10::Device device = c10::Device(c10::kCPU);
};

/// A network with its optimizer (SGD with momentum).
class Training {
 public:
  /// Equal options give equal weights. Errors  kInvalidArgument: no network has this name and takes such samples.
  explicit Training(const NetworkOptions& options);

  /// Forward, loss, backward and update. With `is_mixed`, forward and loss run under autocast to bfloat16.
  /// Returns the loss, on the device.
  at::Tensor step(const train::Batch& batch, bool is_mixed = false);

 private:
  at::Tensor parameter(std::vector<int64_t> sizes);

  NetworkOptions options_;
  train::NamedTensors parameters_;
  std::function<at::Tensor(const at::Tensor& x)> forward_;
  std::unique_ptr<train::Sgd> optimizer_;
};

/// Returns the samples of the exercises batch and precision: random images [1, 28, 28] of 10 classes.
train::Batch random_images(int64_t batch_size, c10::Device device);

}  // namespace yoke::exercise
