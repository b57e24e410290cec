// bench/train/models.h -- the networks of the training benches; bench/peers/models.py holds the same ones.
//
// Members are made statement by statement in Python's order, so that the same seed gives the same weights.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace yoke::bench {

struct Batch {
  at::Tensor x, y;
};

/// A network with its batches and loss.
class Model : public torch::nn::Module {
 public:
  virtual at::Tensor loss(const Batch& batch) = 0;
  virtual Batch make_batch() const = 0;  ///< From the default generator.
};

const std::vector<std::string>& model_names();
std::shared_ptr<Model> make_model(const std::string& name);

}  // namespace yoke::bench
