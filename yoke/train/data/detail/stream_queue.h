// yoke/train/data/detail/stream_queue.h -- gives the items of a stream to the workers of a loader.
#pragma once

#include <c10/util/ScopeExit.h>

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "yoke/train/data/detail/check.h"
#include "yoke/train/data/detail/stream_order.h"
#include "yoke/train/data/loader.h"

namespace yoke::train::detail {

/// Reads the items of a stream batch by batch. Any worker may ask for the next batch.
class StreamQueue {
 public:
  StreamQueue(OpenStream open, const LoaderOptions& options, const DistributedSamplerOptions& share)
      : order_(std::move(open), {.batch_size = options.batch_size,
                                 .shuffle = options.shuffle,
                                 .window = options.shuffle_window,
                                 .seed = options.seed,
                                 .drop_last = options.drop_last,
                                 .exact = options.exact,
                                 .continues_passes = options.batches_per_epoch > 0,
                                 .num_ranks = share.num_ranks}) {
    check_that(!options.sampler, "loader: a sampler gives the order of numbered samples, and a stream has none");
  }

  /// REQUIRES: no call of read() is in progress.
  void seek(int64_t pass, int64_t item, int64_t place) {
    order_.seek(pass, item, place);
    next_ = 0;
  }

  /// Waits until the batches before batch `number` have been read. Returns an empty vector after the end.
  /// REQUIRES: read() is called once for each number, beginning with 0 after seek().
  std::vector<StreamItem> read(int64_t number) {
    std::unique_lock lock(mutex_);
    is_turn_.wait(lock, [&] { return next_ == number; });
    ++next_;
    const auto notify = c10::make_scope_exit([&] { is_turn_.notify_all(); });
    return order_.read();
  }

 private:
  std::mutex mutex_;
  std::condition_variable is_turn_;
  StreamOrder order_;
  int64_t next_ = 0;
};

}  // namespace yoke::train::detail
