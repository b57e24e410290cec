// yoke/train/parallel/sync_batch_norm.h -- batch normalisation over the batches of all ranks.
#pragma once

#include <torch/nn/modules/batchnorm.h>

#include <cstdint>

namespace yoke::dist {
class Group;
}

namespace yoke::train {

/// BatchNorm1d, 2d or 3d that uses the mean and variance of the whole batch over all ranks.
///
/// Use it in place of a BatchNorm; before synchronize() it behaves like one. Parameters, buffers, their names and the
/// options are those of BatchNorm, so checkpoints can be exchanged.
///
/// Shapes  input [batch, channels, ...] with 2 to 5 dimensions, which is also the output's shape. Batch sizes may
///         differ between ranks, and be 0 on some.
/// Ranks   forward in training mode is collective, and so is its backward; evaluation is not.
/// Errors  kInvalidArgument: too few dimensions, a wrong number of channels, or at most one value per channel over all
///         ranks (thrown on all ranks; the running statistics are unchanged). kFailedPrecondition: a backward with
///         create_graph, since gradients of gradients are not supported.
/// Source  Peng et al., "MegDet", CVPR 2018, sec. 3.3; gives the same numbers as torch.nn.SyncBatchNorm.
class SyncBatchNormImpl : public torch::nn::NormImplBase<0, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  using NormImplBase::NormImplBase;  ///< Takes torch::nn::BatchNormOptions or the number of channels.

  at::Tensor forward(const at::Tensor& input);

  /// From now on the ranks of `group` share their statistics. Clones of this module do too. `group` must outlive the
  /// module.
  void synchronize(dist::Group& group) { group_ = &group; }
  bool is_synchronized() const { return group_ != nullptr; }

  /// Takes the parameters, statistics and mode of `norm`. The parameter tensors stay the same, so an existing optimizer
  /// remains valid.
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

/// Synchronizes every SyncBatchNorm below `model`, and replaces every BatchNorm in a Sequential by a SyncBatchNorm of
/// the same name. Call it before DistributedDataParallel is constructed. Returns the number of synchronized layers. If
/// a C++ module holds a BatchNorm as a typed member, the layer cannot be replaced, because the member would still refer
/// to the old layer. Declare such a member as a SyncBatchNorm.
/// Errors  kFailedPrecondition, naming the BatchNorms that are not in a Sequential; nothing is changed.
int64_t convert_sync_batch_norm(torch::nn::Module& model, dist::Group& group);

/// Returns whether `model` or a module below it is a synchronized SyncBatchNorm.
bool has_sync_batch_norm(const torch::nn::Module& model);

}  // namespace yoke::train
