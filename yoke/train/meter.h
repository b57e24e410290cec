// yoke/train/meter.h -- running means that stay on the device until somebody reads them.
//
//     Mean loss_mean; Accuracy accuracy;
//     for (...) { loss_mean.add(loss, batch); accuracy.add(logits, target); }   // waits for nothing
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

/// A weighted sum and its weight. Sums are float64 and live where the values do; moving there with the first value.
///
/// Threads  one at a time. Adding never waits for a GPU; reading does.
class Meter {
 public:
  virtual ~Meter() = default;

  /// This rank's mean so far; NaN before the first value.
  double read() const;

  /// Collective. The mean over all ranks' values. Several meters: read_all.
  double read(dist::Group& group) const;

  at::Tensor sum() const;  ///< float64 [], where the values are.
  int64_t weight() const { return weight_; }
  void reset();

  /// float64 [2] on the CPU: sum and weight.
  at::Tensor state() const;
  /// Errors  kInvalidArgument for anything that state() cannot have given.
  void load_state(const at::Tensor& state);

 protected:
  Meter() = default;
  /// `values` scalar, any dtype and device; adds values * scale.
  void accumulate(const at::Tensor& value, int64_t scale, int64_t weight);

 private:
  friend std::vector<double> read_all(dist::Group& world, std::initializer_list<const Meter*> meters);
  /// What is read where the mean over all values is `mean`.
  virtual double figure(double mean) const { return mean; }

  at::Tensor sum_;  ///< float64 []; undefined is 0.
  int64_t weight_ = 0;
};

/// The mean of values that are means themselves, as a loss is over its batch.
class Mean : public Meter {
 public:
  /// `value` one element, any dtype; counts as `weight` samples, so that unequal batches add up to the true mean. One
  /// of no samples (an empty batch's, which is NaN) is left out.
  /// Errors  kInvalidArgument for more elements than one, or a negative weight.
  void add(const at::Tensor& value, int64_t weight);
};

/// exp of the mean cross-entropy over all tokens of all ranks, which no mean of the batches' or ranks' perplexities is.
class Perplexity : public Mean {
 public:
  /// `loss` the mean cross-entropy (natural logarithm) of `num_tokens` tokens: those that were averaged over, so
  /// without padding that the loss ignores. Errors as Mean's.
  void add(const at::Tensor& loss, int64_t num_tokens) { Mean::add(loss, num_tokens); }

 private:
  double figure(double mean) const override;
};

/// The share of samples whose largest logit is the target's, in [0, 1]; the first of equal logits counts.
class Accuracy : public Meter {
 public:
  /// logits [N, C], target int64 [N] on the same device.
  /// Errors  kInvalidArgument for other shapes.
  void add(const at::Tensor& logits, const at::Tensor& target);
};

/// The share of samples whose target is among the `k` largest logits, in [0, 1].
class TopAccuracy : public Meter {
 public:
  /// Errors  kInvalidArgument unless k > 0.
  explicit TopAccuracy(int64_t k);
  /// As Accuracy's. With fewer classes than k every sample counts.
  void add(const at::Tensor& logits, const at::Tensor& target);

 private:
  int64_t k_;
};

/// Collective. The means over all ranks, in one all_reduce. The same meters in the same order on all ranks.
std::vector<double> read_all(dist::Group& group, std::initializer_list<const Meter*> meters);

/// Collective. All ranks' states, float64 [meters, ranks, 2], on the CPU of every rank: for a checkpoint in the middle
/// of an epoch.
at::Tensor gather_meters(dist::Group& group, std::initializer_list<const Meter*> meters);

/// Puts them back: each rank its own; when the number of ranks has changed, rank 0 takes all, and read_all gives the
/// same means (but for the order of its sums). Not collective.
/// Errors  kInvalidArgument when `states` is not of these meters.
void restore_meters(const dist::Group& group, std::initializer_list<Meter*> meters, const at::Tensor& states);

}  // namespace yoke::train
