// yoke/train/data/loader.h -- batches of samples, gathered and normalised ahead of the training loop.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "yoke/train/data/samples.h"

namespace yoke::train {

/// Bytes become (x / 255 - mean) / stddev: torchvision's ToTensor and Normalize, to the last bit. One entry for all
/// channels (dimension 1 of the data), or one for each.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> stddev;
};

struct LoaderOptions {
  int64_t batch_size = 64;
  bool drop_last = false;    ///< Leaves out a last batch that is not full.
  int64_t num_workers = 1;   ///< Threads that make batches; 0: next() makes them itself. The batches are the same.
  int64_t num_prefetch = 4;  ///< Batches ready or in the making, at least 1; workers beyond this many idle.
  std::optional<Normalization> normalization;  ///< For uint8 data; without it data are copied as they are.
  at::ScalarType dtype = at::kFloat;           ///< Of normalised data: kFloat, kBFloat16 or kHalf, rounded to nearest.
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;  ///< Or ChannelsLast, for data [N, C, H, W].
  c10::Device device = c10::Device(c10::kCPU);  ///< Where batches will go. A GPU: they lie in pinned memory.
};

/// On the CPU, in pinned memory where the loader's device is a GPU: `batch->data.to(device, /*non_blocking=*/true)`.
struct Batch {
  at::Tensor data;    ///< [batch, ...] like Samples::data, normalised.
  at::Tensor target;  ///< [batch, ...] like Samples::target.
};

/// Batches of in-memory or mapped samples, in the order that `start` gives, whatever the number of workers.
///
///     Loader loader(samples, {.batch_size = 256, .normalization = Normalization{{0.286}, {0.353}}});
///     loader.start(sampler.indices(epoch));
///     while (auto batch = loader.next()) { ... }
///
/// Memory   a batch stays valid and unchanged as long as anything holds it or a view of it, also after the loader is
///          gone; then its memory serves a later batch.
/// Threads  one caller. Workers start at the first `start`, take no signals and none of libtorch's threads.
/// Errors   a batch that could not be made (kUnavailable: no memory) throws in the `next` that should have given it.
class Loader {
 public:
  /// Errors  kInvalidArgument: samples not contiguous, not on the CPU or not as many as their targets; options that do
  ///         not fit them. kFailedPrecondition: a GPU is asked for, and libtorch sees none.
  Loader(Samples samples, const LoaderOptions& options);
  Loader(Loader&&) noexcept;
  /// Both this and another `start` may come at any time: batches in the making are dropped.
  ~Loader();

  /// Begins to make the batches of `indices`, each in [0, N), at number `first_batch` (to resume in an epoch).
  /// Errors  kInvalidArgument: an index outside the samples; first_batch outside [0, number of batches]. kUnavailable:
  ///         the system has no more threads. Nothing is begun then.
  void start(std::vector<int64_t> indices, int64_t first_batch = 0);

  /// The next batch, waiting for it if need be; nullopt at the end, and before any `start`.
  std::optional<Batch> next();

  /// How many batches `num_indices` indices make.
  int64_t num_batches(int64_t num_indices) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::train
