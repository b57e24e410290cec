// yoke/train/optim/plateau.h -- a learning rate that falls when a metric has stopped improving.
#pragma once

#include <cstdint>
#include <limits>

#include "yoke/train/named_tensors.h"

namespace yoke::train {

enum class Better { kLower, kHigher };
enum class Threshold { kRelative, kAbsolute };

struct PlateauOptions {
  double lr = 1;  ///< The first rate; at 1 lr() is a factor, for groups with rates of their own.
  Better better = Better::kLower;
  double factor = 0.1;
  int64_t patience = 10;  ///< So many observations in a row without improvement are borne; the next one reduces.
  double threshold = 1e-4;
  Threshold threshold_mode = Threshold::kRelative;
  int64_t cooldown = 0;  ///< Observations after a reduction that are not held against it.
  double min_lr = 0;
  double eps = 1e-8;  ///< Smaller reductions are not made.
};

/// torch.optim.lr_scheduler.ReduceLROnPlateau.
///
///     plateau.observe(validation_loss);
///     optimizer.set_lr(plateau.lr());   // after a resumption too: an optimizer's state has no rates
///
/// Ranks   not collective: give all ranks the same metric (Mean::read(world) does).
class ReduceOnPlateau {
 public:
  /// Errors  kInvalidArgument: options outside their ranges.
  explicit ReduceOnPlateau(const PlateauOptions& options = {});

  /// Takes a metric, one per epoch as a rule; true when the rate has been reduced. A NaN is no improvement.
  bool observe(double metric);

  double lr() const { return lr_; }

  /// "lr", "best", "num_bad", "cooldown": double numbers, for a checkpoint.
  TensorMap state_dict() const;

  /// Errors  kInvalidArgument naming the tensor: missing, unknown or not one number. All or nothing.
  void load_state_dict(const TensorMap& state);

 private:
  PlateauOptions options_;
  double lr_;
  double best_;
  int64_t num_bad_ = 0;
  int64_t cooldown_ = 0;  ///< Observations that are left of it.
};

}  // namespace yoke::train
