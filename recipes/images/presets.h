// recipes/images/presets.h -- complete configurations: the network, the pictures and how it is trained.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "yoke/models/resnet.h"
#include "yoke/models/vit.h"

namespace images {

struct Preset {
  std::variant<yoke::models::ResNetOptions, yoke::models::ViTOptions> network;
  int64_t image_size = 224;
  int64_t num_epochs = 0;
  int64_t batch_size = 0;   ///< Samples of a step, of all ranks together.
  bool adamw = false;       ///< Otherwise SGD with Nesterov's momentum 0.9.
  double lr = 0;            ///< The highest one: it rises for the first epochs, then falls as a cosine.
  double warm_up = 0;       ///< The share of all steps in which it rises.
  double weight_decay = 0;  ///< Of weights only; not of biases, norms, the class token and positions.
  double label_smoothing = 0.1;
  double max_norm = 0;               ///< Gradients are clipped to this norm; 0: they are not.
  double mixup = 0;                  ///< Alpha of mixup; 0: pictures are not mixed.
  double min_area = 0.08;            ///< The smallest part of a picture that is cut out of it, as a share of its area.
  double tested_side = 224.0 / 256;  ///< The part of a picture's shorter side that a test sees.
  /// Multiplies the first weights, whose deviation of 0.02 suits a width of hundreds.
  double first_weights = 1;
  int64_t shape_side = 64;    ///< Of drawn shapes, in pixels.
  int64_t num_shapes = 2000;  ///< Drawn to train with.
};

Preset smallest();      ///< A small ResNet for pictures of 64x64: on drawn shapes, a minute on two CPUs.
Preset smallest_vit();  ///< A small vision transformer for pictures of 32x32.
Preset resnet50();  ///< ResNet-50 at 224x224: torchvision's first recipe (90 epochs, SGD, a cosine instead of steps).
Preset vit_s();     ///< ViT-S/16 at 224x224: AdamW and mixup, as in Beyer et al., "Better plain ViT baselines".

std::vector<std::string> preset_names();    ///< The default is the first.
Preset preset_of(const std::string& name);  ///< REQUIRES: one of preset_names().

}  // namespace images
