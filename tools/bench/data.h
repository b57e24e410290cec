// tools/bench/data.h -- opens a data set of any kind that yoke reads.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/bench/networks.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/data/samples.h"

namespace yoke::exercise {

enum class DataKind { kImageFolder, kTarShards, kCifar10, kCifar100, kIdx, kTokens };

/// Determines the kind of a data set from the names in its folder. Pure.
/// Errors  kInvalidArgument: the folder is empty, or has no class folder and no file that yoke reads.
DataKind kind_of_folder(const std::string& folder, const std::vector<std::string>& files,
                        const std::vector<std::string>& folders);

/// A loader whose batches never end: the last batch of an epoch is followed by the first batch of the next epoch.
class Feed {
 public:
  virtual ~Feed() = default;
  virtual train::Batch next() = 0;
  virtual bool is_ready() const = 0;  ///< Whether next() would return without waiting.
};

struct FeedOptions {
  int64_t batch_size = 64;
  int64_t num_workers = 0;
  int64_t num_prefetch = 4;
  int64_t first_epoch = 0;
  c10::Device device = c10::Device(c10::kCPU);
};

struct DataSet {
  std::string description;  ///< "1,000 images in 10 classes of images/"
  int64_t num_samples = 0;
  NetworkOptions network;  ///< All options except `name` and `device`.
  std::string note;        ///< A remark for the reader of the results; may be empty.
  std::function<std::unique_ptr<Feed>(const FeedOptions& options)> open;
};

/// Opens the data set at `path`. If `path` is empty, opens Fashion-MNIST, or random samples of the same shape if
/// Fashion-MNIST is not installed.
/// Errors  those of the source, with the path.
DataSet open_data(const std::string& path);

/// Returns the batches of a Loader, in a new order in each epoch. All batches have the full size.
template <class Source>
class LoaderFeed : public Feed {
 public:
  /// REQUIRES: the source has at least one full batch of samples.
  LoaderFeed(Source source, const FeedOptions& options, std::optional<train::Normalization> normalization = {})
      : loader_(std::move(source), {.batch_size = options.batch_size,
                                    .seed = 1,
                                    .drop_last = true,
                                    .num_workers = options.num_workers,
                                    .num_prefetch = options.num_prefetch,
                                    .device = options.device,
                                    .normalization = std::move(normalization)}),
        epoch_(options.first_epoch) {
    loader_.epoch(epoch_);
  }

  train::Batch next() override {
    auto batch = loader_.next();
    if (!batch) {
      loader_.epoch(++epoch_);
      batch = loader_.next();
    }
    return std::move(*batch);
  }
  bool is_ready() const override { return loader_.is_ready(); }

 private:
  train::Loader<Source> loader_;
  int64_t epoch_;
};

}  // namespace yoke::exercise
