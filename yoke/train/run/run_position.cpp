#include "yoke/train/run/detail/run_position.h"

#include <optional>
#include <string>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"

namespace yoke::train::detail {
namespace {

std::optional<int64_t> recorded(const StringMap& metadata, const char* name) {
  const auto found = metadata.find(name);
  return found == metadata.end() ? std::nullopt : parse_int(found->second);
}

void require_same(const char* name, int64_t value, int64_t before) {
  if (value == before) return;
  throw Error(ErrorCode::kInvalidArgument,
              "{} is {}, and that of the run to resume was {}: resume with the same samples", name, value, before);
}

}  // namespace

LoaderPosition next_epoch(const LoaderPosition& end) {
  return {.epoch = end.epoch + 1, .first_item = end.first_item < 0 ? -1 : end.first_item + end.sample};
}

LoaderPosition saved_position(const StringMap& metadata, int64_t step, const RunLoader& loader) {
  LoaderPosition position;
  if (const auto found = metadata.find(kRunPosition); found != metadata.end()) {
    read_text(kRunPosition, found->second, position);
    return position;
  }
  const auto steps = recorded(metadata, "steps_per_epoch").value_or(loader.num_batches);
  const auto samples = recorded(metadata, "samples_per_batch").value_or(loader.samples_per_batch);
  if (steps < 1) throw Error(ErrorCode::kDataLoss, "the checkpoint's 'steps_per_epoch' is {}", steps);
  return {.epoch = step / steps, .sample = step % steps * samples, .samples_per_batch = samples};
}

void require_same_samples(const StringMap& metadata, const RunLoader& loader) {
  const auto steps = recorded(metadata, "steps_per_epoch");
  if (loader.samples_per_epoch == 0) {
    if (steps) require_same("steps_per_epoch", loader.num_batches, *steps);
    return;
  }
  if (const auto samples = recorded(metadata, kRunSamples)) {
    require_same("samples_per_epoch", loader.samples_per_epoch, *samples);
  } else if (other_samples_per_batch(metadata, loader) == 0) {
    if (steps) require_same("steps_per_epoch", loader.num_batches, *steps);
  } else if (steps) {  // of an older version, which has only the number of steps: the last one may have had fewer
                       // samples
    const auto of_step = *recorded(metadata, "samples_per_batch"), samples_then = *steps * of_step;
    const bool may_be_same =
        samples_then - of_step < loader.samples_per_epoch && loader.samples_per_epoch < samples_then + of_step;
    if (!may_be_same) require_same("samples_per_epoch", loader.samples_per_epoch, samples_then);
  }
}

int64_t other_samples_per_batch(const StringMap& metadata, const RunLoader& loader) {
  const auto before = recorded(metadata, "samples_per_batch").value_or(loader.samples_per_batch);
  return before == loader.samples_per_batch ? 0 : before;
}

}  // namespace yoke::train::detail
