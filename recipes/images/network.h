// recipes/images/network.h -- makes the network and the optimizer of a preset.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "recipes/images/presets.h"
#include "yoke/models/image_model.h"
#include "yoke/train/optim/optimizer.h"
#include "yoke/train/optim/schedule.h"

namespace images {

/// Makes the network for `num_classes` classes. Its weights are those of the file `init`, if that is not empty. `say`
/// is told which of them are not.
std::shared_ptr<yoke::models::ImageModel> make_network(const Preset& preset, int64_t num_classes,
                                                       const std::string& init,
                                                       const std::function<void(const std::string&)>& say);

/// The preset's optimizer. Biases, norms, the class token and positions are not decayed.
std::unique_ptr<yoke::train::Optimizer> make_optimizer(const Preset& preset,
                                                       const yoke::train::NamedTensors& parameters);

/// The learning rate of each of `num_steps` steps.
yoke::train::Schedule schedule_of(const Preset& preset, int64_t num_steps);

}  // namespace images
