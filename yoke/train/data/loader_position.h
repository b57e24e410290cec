// yoke/train/data/loader_position.h -- how far a training has got in its data.
#pragma once

#include <cstdint>
#include <string>

namespace yoke::train {

/// How far a training has got in its data. Checkpoints save it. It counts samples of the epoch's order over all ranks,
/// which depends neither on the number of ranks nor on the batch size. So a training may continue with other ones.
struct LoaderPosition {
  int64_t epoch = 0;
  int64_t sample =
      0;  ///< This many samples of the epoch's order were read; while the last batch is in use, all of them.
  /// Only for streams with LoaderOptions::batches_per_epoch: the number of items of the stream before this epoch.
  /// -1 means the loader's own number.
  int64_t first_item = -1;
  /// Only in checkpoints of older versions, which counted batches: the samples in one. The last batch of an epoch may
  /// have fewer, so `sample` may be larger than the epoch by less than this.
  int64_t samples_per_batch = 0;
};

/// Converts to "epoch 3, sample 4352" (of a stream "epoch 3 from item 9000, sample 4352") and back. Also reads the text
/// of older versions, "epoch 3, batch 17 of 256 samples". Errors: kDataLoss for any other text; the message contains
/// `name`.
std::string text_of(const LoaderPosition& position);
void read_text(const std::string& name, const std::string& text, LoaderPosition& position);

}  // namespace yoke::train
