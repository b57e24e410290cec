// yoke/train/parallel/power_sgd.h -- compresses gradients to products of two thin matrices.
#pragma once

#include <cstdint>

#include "yoke/train/parallel/communication_hooks.h"

namespace yoke::train {

struct PowerSgdOptions {
  int64_t matrix_rank = 1;               ///< Columns of the thin matrices; more columns are more exact, but larger.
  int64_t start_step = 1000;             ///< Earlier steps are averaged exactly; a tenth of the training is usual.
  double min_compression_rate = 2;       ///< A matrix that would shrink by less than this factor is averaged exactly.
  bool error_feedback = true;            ///< Adds the error of the compression to the next step's gradient.
  bool warm_start = true;                ///< Starts from the thin matrices of the previous step.
  double orthogonalization_epsilon = 0;  ///< Prevents a division by zero if a whole column of gradients is zero.
  uint64_t seed = 0;                     ///< Seed of the first thin matrices; the same on all ranks.
};

/// Compresses the gradient of each weight to rank `matrix_rank`. The gradient is viewed as a matrix [rows, all other
/// dimensions]; vectors are averaged exactly. The compression is an approximation, whose error is added to the next
/// step. A hook serves one DistributedDataParallel, because it stores the matrices and errors of each bucket. The
/// errors take as much memory as the gradients. An infinite or NaN gradient stays in the errors, so do not use this
/// hook with a GradScaler, which causes overflows.
///
/// Errors  kInvalidArgument: start_step is below 2 with error feedback or warm start, since buckets change after the
///         first step; matrix_rank is below 1.
/// Source  Vogels et al., "PowerSGD", NeurIPS 2019, algorithm 2; gives the same numbers as PyTorch's powerSGD_hook.
CommunicationHook power_sgd_hook(dist::Group& group, const PowerSgdOptions& options = {});

}  // namespace yoke::train
