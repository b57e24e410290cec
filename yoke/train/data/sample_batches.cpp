#include <ATen/core/Tensor.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "yoke/train/data/detail/check.h"
#include "yoke/train/data/detail/gather.h"
#include "yoke/train/data/detail/normalization_tables.h"
#include "yoke/train/data/loader.h"

namespace yoke::train {
namespace {

using detail::check_that;

// The data or the targets of all samples, with the dtype and shape that they have in a batch.
struct Column {
  at::Tensor source;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;  // shape of a full batch
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;
  detail::SampleShape shape;

  Column(const at::Tensor& samples, at::ScalarType to, at::MemoryFormat format, const LoaderOptions& options)
      : source(samples.resolve_conj().resolve_neg()), dtype(to), sizes(source.sizes().vec()), memory_format(format) {
    shape.pixels = 1;
    for (size_t d = 1; d < sizes.size(); ++d) shape.pixels *= sizes[d];
    sizes[0] = options.batch_size;
    shape.channels_last = format == at::MemoryFormat::ChannelsLast;
    auto batch_bytes = static_cast<int64_t>(c10::elementSize(dtype));
    for (const int64_t size : sizes) {
      check_that(!__builtin_mul_overflow(batch_bytes, size, &batch_bytes),
                 "loader: a batch [{}] has more bytes than can be", fmt::join(sizes, ", "));
    }
  }

  void split_channels() {
    shape.channels = sizes[1];
    shape.pixels = sizes[1] == 0 ? 0 : shape.pixels / sizes[1];
  }

  at::Tensor empty(const BatchRequest& request) const {
    auto batch = sizes;
    batch[0] = request.size();
    return request.empty(batch, dtype, memory_format);
  }
};

void check(const Samples& samples, const LoaderOptions& options) {
  for (const auto* tensor : {&samples.data, &samples.target}) {
    const char* what = tensor == &samples.data ? "data" : "target";
    check_that(tensor->defined() && tensor->dim() >= 1, "loader: {} must be a tensor [N, ...]", what);
    check_that(tensor->device().is_cpu() && tensor->is_contiguous(), "loader: {} must be contiguous and on the CPU",
               what);
  }
  const auto& data = samples.data;
  check_that(data.size(0) == samples.target.size(0), "loader: {} samples, but {} targets", data.size(0),
             samples.target.size(0));
  if (options.memory_format == at::MemoryFormat::ChannelsLast) {
    check_that(data.dim() == 4, "loader: channels_last needs data [N, C, H, W], not [{}]",
               fmt::join(data.sizes(), ", "));
  } else {
    check_that(options.memory_format == at::MemoryFormat::Contiguous,
               "loader: memory_format must be Contiguous or ChannelsLast");
  }
  if (const auto& normalization = options.normalization) {
    check_that(data.scalar_type() == at::kByte, "loader: only uint8 data are normalised, not {}",
               c10::toString(data.scalar_type()));
    check_that(options.dtype == at::kFloat || options.dtype == at::kBFloat16 || options.dtype == at::kHalf,
               "loader: normalised data are kFloat, kBFloat16 or kHalf, not {}", c10::toString(options.dtype));
    const auto& [mean, stddev] = *normalization;
    const size_t channels = data.dim() >= 2 ? static_cast<size_t>(data.size(1)) : 1;
    check_that(
        mean.size() == stddev.size() && (mean.size() == 1 || mean.size() == channels),
        "loader: {} means and {} standard deviations for data [{}]; give 1 of each, or one for each of the {} channels",
        mean.size(), stddev.size(), fmt::join(data.sizes(), ", "), channels);
    check_that(std::all_of(stddev.begin(), stddev.end(), [](double value) { return value > 0; }),
               "loader: standard deviations [{}] must be above 0", fmt::join(stddev, ", "));
  }
}

// Makes batches of Samples by copying rows of the two tensors.
class SampleBatches {
 public:
  SampleBatches(const Samples& samples, const LoaderOptions& options)
      : data_(samples.data, options.normalization ? options.dtype : samples.data.scalar_type(), options.memory_format,
              options),
        target_(samples.target, samples.target.scalar_type(), at::MemoryFormat::Contiguous, options) {
    if (options.memory_format == at::MemoryFormat::ChannelsLast) data_.split_channels();
    if (!options.normalization) return;
    if (options.normalization->mean.size() > 1 && data_.shape.channels == 1) data_.split_channels();
    tables_ = detail::make_normalization_tables(*options.normalization, options.dtype);
  }

  Batch batch(const BatchRequest& request) const {
    const Batch result = {data_.empty(request), target_.empty(request)};
    gather_data(request.samples(), result.data);
    detail::gather(static_cast<const std::byte*>(target_.source.const_data_ptr()), request.samples(), target_.shape,
                   target_.source.element_size(), static_cast<std::byte*>(result.target.data_ptr()));
    return result;
  }

 private:
  void gather_data(std::span<const int64_t> rows, const at::Tensor& to) const {
    const auto* from = static_cast<const std::byte*>(data_.source.const_data_ptr());
    if (!tables_) {
      detail::gather(from, rows, data_.shape, data_.source.element_size(), static_cast<std::byte*>(to.data_ptr()));
      return;
    }
    std::visit(
        [&]<class T>(const detail::ByteTables<T>& tables) {
          detail::gather_through(reinterpret_cast<const uint8_t*>(from), rows, data_.shape, tables,
                                 static_cast<T*>(to.data_ptr()));
        },
        *tables_);
  }

  Column data_, target_;
  std::optional<detail::NormalizationTables> tables_;
};

}  // namespace

std::function<Batch(const BatchRequest&)> detail::batches_of(const Samples& samples, const LoaderOptions& options) {
  check(samples, options);
  return [source = std::make_shared<const SampleBatches>(samples, options)](const BatchRequest& request) {
    return source->batch(request);
  };
}

void detail::check_not_for_samples(const LoaderOptions& options) {
  check_that(
      !options.normalization && options.dtype == at::kFloat && options.memory_format == at::MemoryFormat::Contiguous,
      "loader: normalization, dtype and memory_format are for Samples; other sources make batches in their own form");
}

}  // namespace yoke::train
