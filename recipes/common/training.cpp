#include "recipes/common/training.h"

#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <exception>

#include "recipes/common/options.h"
#include "yoke/base/error.h"
#include "yoke/dist/world.h"
#include "yoke/infer/model.h"
#include "yoke/train/checkpoint/stored_checkpoint.h"
#include "yoke/train/run/run.h"

namespace recipes {

int64_t num_workers(const yoke::dist::World& world) { return world.device().is_cpu() ? 0 : 2; }

void on_rank_zero(yoke::dist::World& world, const std::function<void()>& act) {
  if (world.rank() == 0) {
    try {
      act();
    } catch (...) {
      world.fail(std::current_exception());
    }
  }
  world.barrier();
}

yoke::infer::Model model_of_folder_only(const yoke::train::StoredCheckpoint& checkpoint, c10::Device /*device*/) {
  throw yoke::Error(yoke::ErrorCode::kFailedPrecondition,
                    "{} does not say the sizes of its network: give the folder `model` beside it, which the end of the "
                    "run writes",
                    checkpoint.path.string());
}

void to_channels_last(torch::nn::Module& module) {
  for (auto& parameter : module.parameters()) {
    if (parameter.dim() != 4) continue;
    // contiguous(ChannelsLast) does not change a tensor with one input channel, because any layout then counts as
    // channels_last. The gradients are in channels_last, so they would not match the layout of the buckets.
    const auto options = parameter.options().memory_format(at::MemoryFormat::ChannelsLast);
    parameter.set_data(at::empty(parameter.sizes(), options).copy_(parameter.detach()));
  }
}

void add_rest(yoke::train::Run& run, const Options& options) {
  using yoke::train::ThreadRule;
  run.state().add_generators();
  run.state().add_num_threads(options.deterministic ? ThreadRule::kAdopt : ThreadRule::kWarn);
}

}  // namespace recipes
