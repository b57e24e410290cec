// yoke/train/data/detail/stream_order.h -- divides the items of a stream into the batches of one rank.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "yoke/train/data/stream.h"

namespace yoke::train::detail {

struct StreamOrderOptions {
  int64_t batch_size = 1;
  bool shuffle = true;
  int64_t window = 1;  ///< The number of items that are shuffled among each other and held in memory.
  uint64_t seed = 0;
  bool drop_last = false;
  bool exact = false;
  int64_t batches_per_epoch = 0;  ///< If above 0, an epoch ends after this many batches, not with the pass.
  int64_t num_ranks = 1, rank = 0;
};

/// A batch over all ranks is a consecutive part of the shuffled items; its item i goes to rank i % num_ranks. The order
/// within a window is a function of seed, pass and window. So reading can begin at any window: the items before it are
/// skipped. Not thread-safe.
class StreamOrder {
 public:
  StreamOrder(OpenStream open, const StreamOrderOptions& options);

  /// The next read() returns the items of this batch.
  void seek(int64_t epoch, int64_t batch);

  /// Returns this rank's items of the next batch, and none at the end. With neither `exact` nor `drop_last`, items of
  /// the last window are repeated in the last batch so that all ranks have the same number of samples.
  /// Errors  those of the stream, again in each call until seek(); kInvalidArgument: `batches_per_epoch` is set, and a
  ///         pass has no items.
  std::vector<StreamItem> read();

 private:
  bool continues_passes() const { return options_.batches_per_epoch > 0; }
  void enter();
  bool fill();  ///< Reads the next window. Returns false at the end.
  std::vector<StreamItem> read_batch();

  OpenStream open_;
  StreamOrderOptions options_;

  bool is_sought_ = false;
  int64_t epoch_ = 0, batch_ = 0;  ///< The position that read() continues from.
  std::exception_ptr error_;

  std::unique_ptr<StreamPass> stream_;  ///< Null after the end of the pass.
  int64_t pass_ = 0, num_windows_ = 0;  ///< The open pass, and the windows read of it.
  std::vector<StreamItem> window_;      ///< In the shuffled order.
  size_t next_ = 0;                     ///< The first item of `window_` that is in no batch yet.
};

}  // namespace yoke::train::detail
