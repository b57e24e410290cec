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
  bool continues_passes = false;  ///< The end of a pass ends nothing: items of the next pass follow.
  int64_t num_ranks = 1;
};

/// Forms batches from windows of shuffled items. A batch over all ranks is a run of consecutive items; its item i goes
/// to the rank whose place is i % num_ranks. The order within a window is a function of seed, pass and window. So
/// reading can begin at any window after skipping the earlier items. Not thread-safe.
class StreamOrder {
 public:
  StreamOrder(OpenStream open, const StreamOrderOptions& options);

  /// The next read() begins with item `item` of the order of pass `pass`. With `continues_passes`, of the order of all
  /// passes from `pass` on. `place` is this rank's among the ranks that divide what follows: 0 gets that item.
  void seek(int64_t pass, int64_t item, int64_t place);

  /// Returns this rank's items of the next batch; empty at the end. With neither `exact` nor `drop_last`, the last
  /// batch repeats items of the last window, so that all ranks have the same number of samples.
  /// Errors  those of the stream, again in each call until seek(); kInvalidArgument: `continues_passes`, and a pass
  ///         has no items.
  std::vector<StreamItem> read();

 private:
  void enter();
  bool fill();  ///< Reads the next window. Returns false at the end.
  std::vector<StreamItem> read_batch();

  OpenStream open_;
  StreamOrderOptions options_;

  bool is_sought_ = false;
  int64_t first_pass_ = 0, item_ = 0, place_ = 0;  ///< Where the next read() begins, as in seek().
  std::exception_ptr error_;

  std::unique_ptr<StreamPass> stream_;  ///< Null after the end of the pass.
  int64_t pass_ = 0, num_windows_ = 0;  ///< Number of the open pass, and of its windows that have been read.
  std::vector<StreamItem> window_;      ///< In the shuffled order.
  size_t next_ = 0;                     ///< The first item of `window_` that is in no batch yet.
};

}  // namespace yoke::train::detail
