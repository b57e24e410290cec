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
  int64_t batches_per_epoch = 0;  ///< If above 0, an epoch ends after this many batches, not at the end of the pass.
  int64_t num_ranks = 1, rank = 0;
};

/// Forms batches from windows of shuffled items. A batch over all ranks is a run of consecutive items; its item i goes
/// to rank i % num_ranks. The order within a window is a function of seed, pass and window. So reading can begin at any
/// window after skipping the earlier items. Not thread-safe.
class StreamOrder {
 public:
  StreamOrder(OpenStream open, const StreamOrderOptions& options);

  /// Sets the batch that the next read() returns.
  void seek(int64_t epoch, int64_t batch);

  /// Returns this rank's items of the next batch; empty at the end. With neither `exact` nor `drop_last`, the last
  /// batch repeats items of the last window, so that all ranks have the same number of samples.
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
  int64_t epoch_ = 0, batch_ = 0;  ///< Position of the batch that the next read() returns.
  std::exception_ptr error_;

  std::unique_ptr<StreamPass> stream_;  ///< Null after the end of the pass.
  int64_t pass_ = 0, num_windows_ = 0;  ///< Number of the open pass, and of its windows that have been read.
  std::vector<StreamItem> window_;      ///< In the shuffled order.
  size_t next_ = 0;                     ///< The first item of `window_` that is in no batch yet.
};

}  // namespace yoke::train::detail
