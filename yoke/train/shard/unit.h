// yoke/train/shard/unit.h -- a block of a network that can be sharded as a unit.
//
//     std::vector<Unit<BlockImpl>> blocks;
//     blocks.push_back(register_module("block0", Unit<BlockImpl>(width)));
//     x = blocks[0](x);
#pragma once

#include <torch/nn/pimpl.h>

#include <utility>

#include "yoke/train/shard/fully_sharded_data_parallel.h"

namespace yoke::train {

/// A holder of a module, as torch::nn::Linear holds a LinearImpl. Calling the holder runs the module's forward. If a
/// FullyShardedDataParallel shards the module or a module that contains it, the call goes through that object. So the
/// network's code is the same with and without sharding.
template <class Impl>
class Unit : public torch::nn::ModuleHolder<Impl> {
 public:
  using torch::nn::ModuleHolder<Impl>::ModuleHolder;

  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    auto& module = **this;
    if (auto* sharded = sharded_by(module)) return sharded->forward(module, std::forward<Inputs>(inputs)...);
    return module.forward(std::forward<Inputs>(inputs)...);
  }
};

}  // namespace yoke::train
