// yoke/train/meter.h -- running means that stay on the device until they are read.
//
//     Mean loss_mean; Accuracy accuracy;
//     for (...) { loss_mean.add(loss, batch); accuracy.add(logits, target); }   // do not wait for the device
//     const auto figures = read_all(world, {&loss_mean, &accuracy});             // one all_reduce, one wait
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace yoke::dist {
class Group;
}

namespace yoke::train {

/// A weighted sum and the sum of its weights. The weighted sum is float64, on the device of the values.
///
/// Threads one thread at a time. Adding never waits for a GPU; reading does.
class Meter {
 public:
  virtual ~Meter() = default;

  /// This rank's mean so far; NaN before the first value.
  double read() const;

  /// Collective. The mean over all ranks' values. For several meters use read_all.
  double read(dist::Group& group) const;

  at::Tensor sum() const;  ///< float64 [], on the values' device.
  int64_t weight() const { return weight_; }
  void reset();

  /// float64 [2] on the CPU: sum and weight.
  at::Tensor state() const;
  /// Errors kInvalidArgument: `state` cannot be a result of state().
  void load_state(const at::Tensor& state);

 protected:
  Meter() = default;
  /// Adds value * scale. `value` is a scalar of any dtype and device.
  void accumulate(const at::Tensor& value, int64_t scale, int64_t weight);

 private:
  friend std::vector<double> read_all(dist::Group& world, std::initializer_list<const Meter*> meters);
  /// Converts the mean over all values to the result of read().
  virtual double figure(double mean) const { return mean; }

  at::Tensor sum_;  ///< float64 []; undefined means 0.
  int64_t weight_ = 0;
};

/// The mean of values that are means themselves, such as a loss over a batch.
class Mean : public Meter {
 public:
  /// `value` has one element of any dtype. The value counts as `weight` samples, so that batches of different sizes
  /// give the true mean. A value of 0 samples (NaN for an empty batch) is left out.
  /// Errors  kInvalidArgument: more than one element, or a negative weight.
  void add(const at::Tensor& value, int64_t weight);
};

/// exp of the mean cross-entropy over all tokens of all ranks. A mean of the perplexities of batches or ranks would
/// differ.
class Perplexity : public Mean {
 public:
  /// `loss` is the mean cross-entropy (natural logarithm) of `num_tokens` tokens, not counting padding that the loss
  /// ignores. Errors as Mean::add.
  void add(const at::Tensor& loss, int64_t num_tokens) { Mean::add(loss, num_tokens); }

 private:
  double figure(double mean) const override;
};

/// The share of samples, in [0, 1], whose largest logit is that of the target. If several logits are the largest, the
/// first of them counts.
class Accuracy : public Meter {
 public:
  /// `logits` [N, C] and `target` int64 [N] on the same device.
  /// Errors  kInvalidArgument for other shapes.
  void add(const at::Tensor& logits, const at::Tensor& target);
};

/// The share of samples, in [0, 1], whose target is among the `k` largest logits.
class TopAccuracy : public Meter {
 public:
  /// Errors  kInvalidArgument unless k > 0.
  explicit TopAccuracy(int64_t k);
  /// As Accuracy::add. With fewer than k classes every sample counts.
  void add(const at::Tensor& logits, const at::Tensor& target);

 private:
  int64_t k_;
};

/// Collective. The means over all ranks, in one all_reduce. All ranks pass the same meters in the same order.
std::vector<double> read_all(dist::Group& group, std::initializer_list<const Meter*> meters);

/// Collective. The states of all ranks as float64 [meters, ranks, 2] on the CPU of every rank, for a checkpoint in the
/// middle of an epoch.
at::Tensor gather_meters(dist::Group& group, std::initializer_list<const Meter*> meters);

/// Loads gathered states: each rank loads its own row. If the number of ranks has changed, rank 0 loads the sum of all
/// states, and the other ranks begin at 0. read_all then returns the same means, except for rounding. Not collective.
/// Errors  kInvalidArgument: `states` does not fit these meters.
void restore_meters(const dist::Group& group, std::initializer_list<Meter*> meters, const at::Tensor& states);

}  // namespace yoke::train
