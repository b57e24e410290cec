#include "recipes/cifar/presets.h"

namespace cifar {

Preset smallest() {
  auto network = yoke::models::cifar_resnet18(10);
  network.depths = {1, 1, 1, 1};
  network.width = 16;
  return {.network = network,
          .num_epochs = 5,
          .batch_size = 128,
          .max_lr = 0.2,
          .warm_up = 0.3,
          .label_smoothing = 0.1,
          .num_train = 5000,
          .num_test = 1000};
}

Preset resnet18() {
  return {.network = yoke::models::cifar_resnet18(10),
          .num_epochs = 30,
          .batch_size = 512,
          .max_lr = 0.4,
          .warm_up = 0.25,
          .label_smoothing = 0.1,
          .num_train = 50'000,
          .num_test = 10'000};
}

std::vector<std::string> preset_names() { return {"smallest", "resnet18"}; }
Preset preset_of(const std::string& name) { return name == "smallest" ? smallest() : resnet18(); }

}  // namespace cifar
