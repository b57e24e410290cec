// yoke/train/parallel/sync_batch_norm.h -- batch normalisation over the batches of all ranks.
#pragma once

#include <torch/nn/modules/batchnorm.h>

#include <cstdint>

namespace yoke::dist {
class Group;
}

namespace yoke::train {

/// What BatchNorm1d, 2d and 3d do, with mean and variance of the whole batch that lies on all ranks.
///
/// Write it where a BatchNorm would stand; until synchronize() it is one. Parameters, buffers and their names are
/// BatchNorm's, so checkpoints fit both ways, and so do its options.
///
/// Shapes  input [batch, channels, ...] with 2 to 5 dimensions; the output has the same. Batches may differ between
///         ranks, and be empty on some.
/// Ranks   forward in training mode is collective, and so is its backward; evaluation is not.
/// Errors  InvalidArgument: too few dimensions, another number of channels, or no more than one value per
///         channel on all ranks together (on all ranks; the running statistics are as they were).
///         FailedPrecondition: a backward with create_graph, since there are no gradients of gradients.
/// Source  Peng et al., "MegDet", CVPR 2018, sec. 3.3; gives the numbers of torch.nn.SyncBatchNorm.
class SyncBatchNormImpl : public torch::nn::NormImplBase<0, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  using NormImplBase::NormImplBase;  ///< From torch::nn::BatchNormOptions, or from the number of channels.

  at::Tensor forward(const at::Tensor& input);

  /// From here on the ranks of `group`, which outlives this, share their statistics. Clones share them too.
  void synchronize(dist::Group& group) { group_ = &group; }
  bool is_synchronized() const { return group_ != nullptr; }

  /// Becomes what `norm` is: the same parameters (an optimizer made before still holds them), statistics and mode.
  template <class BatchNormImpl>
  void take_over(const BatchNormImpl& norm) {
    take_over(norm, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.num_batches_tracked);
  }

  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const at::Tensor& input) override;

 private:
  void take_over(const torch::nn::Module& norm, const at::Tensor& new_weight, const at::Tensor& new_bias,
                 const at::Tensor& mean, const at::Tensor& var, const at::Tensor& num_batches);

  dist::Group* group_ = nullptr;
};

/// `train::SyncBatchNorm norm(64)`, like torch::nn::BatchNorm2d.
class SyncBatchNorm : public torch::nn::ModuleHolder<SyncBatchNormImpl> {
 public:
  using torch::nn::ModuleHolder<SyncBatchNormImpl>::ModuleHolder;
};

/// Synchronizes every SyncBatchNorm below `model`, and puts one in the place of every BatchNorm in a Sequential, under
/// its name. Before DistributedDataParallel is made. Returns how many layers are now synchronized.
///
/// A BatchNorm that a module of yours holds as a typed member cannot be exchanged in C++: the member would go on
/// pointing to the old one. Make the member a SyncBatchNorm.
/// Errors  FailedPrecondition, and nothing is changed: names the BatchNorms that are not in a Sequential.
int64_t convert_sync_batch_norm(torch::nn::Module& model, dist::Group& group);

/// Whether `model` or a module below it is a synchronized SyncBatchNorm.
bool has_sync_batch_norm(const torch::nn::Module& model);

}  // namespace yoke::train
