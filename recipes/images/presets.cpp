#include "recipes/images/presets.h"

namespace images {

using namespace yoke;

Preset smallest() {
  return {.network = models::ResNetOptions{.depths = {1, 1, 1, 1}, .width = 16},
          .image_size = 64,
          .num_epochs = 6,
          .batch_size = 64,
          .lr = 0.1,
          .warm_up = 0.2,
          .weight_decay = 5e-4,
          .min_area = 0.6};
}

Preset smallest_vit() {
  return {.network = models::ViTOptions{.image_size = 32, .patch_size = 8, .width = 64, .depth = 2, .num_heads = 4},
          .image_size = 32,
          .num_epochs = 12,
          .batch_size = 64,
          .adamw = true,
          .lr = 4e-3,
          .warm_up = 0.2,
          .weight_decay = 0.05,
          .label_smoothing = 0,
          .max_norm = 1,
          .min_area = 0.8,
          .tested_side = 1,
          .first_weights = 6,
          .shape_side = 32,
          .num_shapes = 10'000};
}

Preset resnet50() {
  return {.network = models::resnet50(),
          .num_epochs = 90,
          .batch_size = 256,
          .lr = 0.1,
          .warm_up = 0.05,
          .weight_decay = 1e-4};
}

Preset vit_s() {
  return {.network = models::vit_small(),
          .num_epochs = 90,
          .batch_size = 1024,
          .adamw = true,
          .lr = 1e-3,
          .warm_up = 0.09,
          .weight_decay = 0.1,
          .label_smoothing = 0,
          .max_norm = 1,
          .mixup = 0.2};
}

std::vector<std::string> preset_names() { return {"smallest", "smallest-vit", "resnet50", "vit-s"}; }

Preset preset_of(const std::string& name) {
  if (name == "smallest") return smallest();
  if (name == "smallest-vit") return smallest_vit();
  return name == "resnet50" ? resnet50() : vit_s();
}

}  // namespace images
