// yoke/train/parallel/power_sgd.h -- gradients sent as products of two thin matrices.
#pragma once

#include <cstdint>

#include "yoke/train/parallel/communication_hooks.h"

namespace yoke::train {

struct PowerSgdOptions {
  int64_t matrix_rank = 1;               ///< Columns of the thin matrices: more of them are closer, and larger.
  int64_t start_step = 1000;             ///< Steps before that are averaged exactly: a tenth of the training is usual.
  double min_compression_rate = 2;       ///< A matrix that would not shrink by more than this is averaged exactly.
  bool error_feedback = true;            ///< What compression lost is added to the next step's gradient.
  bool warm_start = true;                ///< Starts from the thin matrices of the step before.
  double orthogonalization_epsilon = 0;  ///< Against division by zero where a whole column of gradients is zero.
  uint64_t seed = 0;                     ///< Of the first thin matrices; the same on all ranks.
};

/// Compresses the gradient of each weight, seen as a matrix [rows, the rest], to rank `matrix_rank`; vectors are
/// averaged exactly. It is an approximation: error feedback makes up for it over the steps. One hook for one
/// DistributedDataParallel: it remembers errors and matrices by bucket, of the size of the gradients. An infinite or
/// NaN gradient stays in that memory, so not with a GradScaler, whose overflows are part of the plan.
///
/// Errors  InvalidArgument: error feedback or warm start with start_step below 2, since buckets change after the first
///         step; matrix_rank below 1.
/// Source  Vogels et al., "PowerSGD", NeurIPS 2019, algorithm 2; numbers as PyTorch's powerSGD_hook gives them.
CommunicationHook power_sgd_hook(dist::Group& group, const PowerSgdOptions& options = {});

}  // namespace yoke::train
