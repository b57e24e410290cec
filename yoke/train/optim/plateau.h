// yoke/train/optim/plateau.h -- a learning rate that falls when a metric has stopped improving.
#pragma once

#include <cstdint>

#include "yoke/train/named_tensors.h"

namespace yoke::train {

enum class Better { kLower, kHigher };
enum class Threshold { kRelative, kAbsolute };

struct PlateauOptions {
  double lr = 1;  ///< The initial rate. With 1, lr() is a factor for groups that have their own rates.
  Better better = Better::kLower;
  double factor = 0.1;
  int64_t patience = 10;  ///< Tolerated successive observations without improvement; one more reduces the rate.
  double threshold = 1e-4;
  Threshold threshold_mode = Threshold::kRelative;
  int64_t cooldown = 0;  ///< Number of observations after a reduction that do not count as bad.
  double min_lr = 0;
  double eps = 1e-8;  ///< A reduction by less than this amount is skipped.
};

/// Equivalent to torch.optim.lr_scheduler.ReduceLROnPlateau.
///
///     plateau.observe(validation_loss);
///     optimizer.set_lr(plateau.lr());
///
/// Ranks   not collective: give all ranks the same metric (Mean::read(world) does).
class ReduceOnPlateau {
 public:
  /// Errors  kInvalidArgument: an option is out of range.
  explicit ReduceOnPlateau(const PlateauOptions& options = {});

  /// Takes a metric, usually once per epoch. Returns true if the rate was reduced. NaN is not an improvement.
  bool observe(double metric);

  double lr() const { return lr_; }

  /// "lr", "best", "num_bad" and "cooldown" as doubles, for a checkpoint.
  TensorMap state_dict() const;

  /// Errors kInvalidArgument naming a tensor that is missing, unknown or not one number; then nothing changes.
  void load_state_dict(const TensorMap& state);

 private:
  PlateauOptions options_;
  double lr_;
  double best_;
  int64_t num_bad_ = 0;
  int64_t cooldown_ = 0;  ///< Remaining observations of the cooldown.
};

}  // namespace yoke::train
