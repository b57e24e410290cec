// recipes/cifar/presets.h -- complete configurations: the network and how it is trained.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/models/resnet.h"

namespace cifar {

struct Preset {
  yoke::models::ResNetOptions network;
  int64_t num_epochs = 0;
  int64_t batch_size = 0;  ///< Samples of a step, of all ranks together.
  double max_lr = 0;
  double warm_up = 0;  ///< The share of all steps.
  double momentum = 0.9;
  double weight_decay = 5e-4;  ///< Not of batch norm and biases.
  double label_smoothing = 0;
  int64_t num_train = 0, num_test = 0;  ///< Pictures to draw if there is no data set.
};

/// A ResNet with one block in each stage and a quarter of the channels: on drawn shapes, a minute on two CPUs.
Preset smallest();
/// ResNet-18 with the stem for small images, 30 epochs of one-cycle SGD.
Preset resnet18();

std::vector<std::string> preset_names();    ///< The default is the first.
Preset preset_of(const std::string& name);  ///< REQUIRES: one of preset_names().

}  // namespace cifar
