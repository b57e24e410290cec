#include "yoke/train/evaluate.h"

#include <torch/nn/module.h>

namespace yoke::train {

ModeGuard::ModeGuard(torch::nn::Module& model, bool is_training) {
  modes_.push_back({&model, model.is_training()});
  // Without the model itself, which may be an object that no shared_ptr owns.
  for (const auto& module : model.modules(/*include_self=*/false))
    modes_.push_back({module.get(), module->is_training()});
  model.train(is_training);
}

ModeGuard::~ModeGuard() {
  // train() also sets the modules below. So a module comes before those that it contains.
  for (const auto& mode : modes_) {
    if (mode.module->is_training() == mode.is_training) continue;
    try {
      mode.module->train(mode.is_training);
    } catch (...) {  // train() of a user's class; a destructor cannot report this
    }
  }
}

}  // namespace yoke::train
