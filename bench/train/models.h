// bench/train/models.h -- the networks of the training benches. bench/peers/models.py has the same networks.
//
// Each statement constructs one member, in Python's order, so that the same seed gives the same weights.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

namespace yoke::bench {

struct Batch {
  at::Tensor x, y;
};

/// A network, and the batches and the loss for its training.
class Model : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x, const at::Tensor& y) = 0;  ///< Returns the loss.
  virtual Batch make_batch() const = 0;                                      ///< Uses the default random generator.
  /// Names of the blocks that sharded training gathers and frees as units.
  virtual std::vector<std::string> units() const { return {}; }
};

const std::vector<std::string>& model_names();
std::shared_ptr<Model> make_model(const std::string& name);

}  // namespace yoke::bench
