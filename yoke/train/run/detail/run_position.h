// yoke/train/run/detail/run_position.h -- where a Run's checkpoint was saved, in epochs and samples. Pure.
#pragma once

#include <cstdint>

#include "yoke/train/checkpoint/text_value.h"
#include "yoke/train/data/loader_position.h"
#include "yoke/train/run/run.h"

namespace yoke::train::detail {

/// In the metadata of a run's checkpoints: the text of a LoaderPosition, and RunLoader::samples_per_epoch. In the state
/// are steps_per_epoch and samples_per_batch, those of the process that saved it.
inline constexpr const char* kRunPosition = "run.position";
inline constexpr const char* kRunSamples = "run.samples_per_epoch";

/// The beginning of the next epoch, given the position after the last batch of one.
LoaderPosition next_epoch(const LoaderPosition& end);

/// Where the run goes on that `step` steps of a checkpoint with these metadata have trained. Checkpoints of older
/// versions have no position, but all their steps took as many samples.
LoaderPosition saved_position(const StringMap& metadata, int64_t step, const RunLoader& loader);

/// Errors  kInvalidArgument: the loader has other samples than that of the checkpoint.
void require_same_samples(const StringMap& metadata, const RunLoader& loader);

/// The samples of a step when the checkpoint was saved, if that number is another one than now; otherwise 0.
int64_t other_samples_per_batch(const StringMap& metadata, const RunLoader& loader);

}  // namespace yoke::train::detail
