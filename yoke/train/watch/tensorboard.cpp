#include "yoke/train/watch/tensorboard.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <cstdio>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/png.h"
#include "yoke/train/watch/detail/event_encoder.h"
#include "yoke/train/watch/detail/event_file.h"
#include "yoke/train/watch/detail/read_figures.h"

namespace yoke::train {
namespace {

/// A value that was added, on its device.
struct PendingValue {
  double wall_time = 0;
  int64_t step = 0;
  std::string tag;
  at::Tensor figures;  ///< float64: [1] for a scalar, statistics_of() for a histogram; undefined for an image.
  std::string image_summary;
};

constexpr int64_t kNumStatistics = 6;

/// Returns float64 [number of finite values, their sum, their sum of squares, smallest, lower limit of the bins, upper
/// limit, counts of the bins...], on the device of `values`, without waiting for the device.
at::Tensor statistics_of(const at::Tensor& values, int64_t num_bins) {
  const at::NoGradGuard no_grad;
  const auto flat = values.reshape({-1}).to(at::kDouble);
  const auto is_finite = flat.isfinite();
  constexpr auto kInfinity = std::numeric_limits<double>::infinity();
  const auto min = flat.where(is_finite, kInfinity).min(), max = flat.where(is_finite, -kInfinity).max();
  const auto finite = flat.where(is_finite, 0.0);
  const auto bins = static_cast<double>(num_bins);
  // If all values are equal, widens the range, so that the bins have a width.
  const auto widening = min.eq(max).to(at::kDouble) * 0.5;
  const auto lower = min - widening, upper = max + widening;
  const auto width = upper / bins - lower / bins;
  // histc takes its range as CPU numbers, which would wait for the device. So bin numbers are counted instead of
  // values.
  const auto bin = ((flat - lower) / width).floor().clamp(0, bins - 1).where(is_finite, -1.0);
  const auto counts = at::histc(bin, num_bins, 0, num_bins);
  return at::cat({at::stack({is_finite.sum().to(at::kDouble), finite.sum(), finite.square().sum(), min, lower, upper}),
                  counts, max.reshape({1})});
}

/// Encodes figures that have been read; nullopt for a histogram without finite values.
std::optional<std::string> encode(const std::string& tag, std::span<const double> figures) {
  if (figures.size() == 1) return detail::encode_scalar(tag, static_cast<float>(figures[0]));
  detail::Histogram histogram{.min = figures[3],
                              .max = figures.back(),
                              .num = figures[0],
                              .sum = figures[1],
                              .sum_squares = figures[2],
                              .counts = {0}};
  if (histogram.num == 0) return std::nullopt;
  const auto counts = figures.subspan(kNumStatistics, figures.size() - kNumStatistics - 1);
  const double lower = figures[4], upper = figures[5], bins = static_cast<double>(counts.size());
  // In the format, a bin begins where the previous one ends, so an empty bin comes first.
  for (size_t i = 0; i <= counts.size(); ++i) {
    const auto share = static_cast<double>(i) / bins;
    histogram.limits.push_back(lower * (1 - share) + upper * share);
  }
  histogram.counts.insert(histogram.counts.end(), counts.begin(), counts.end());
  return detail::encode_histogram(tag, histogram);
}

std::span<const uint8_t> bytes_of(const at::Tensor& pixels) {
  return {pixels.const_data_ptr<uint8_t>(), static_cast<size_t>(pixels.numel())};
}

}  // namespace

struct TensorBoardWriter::Impl {
  Impl(const std::filesystem::path& folder, const TensorBoardOptions& given) : file(folder), options(given) {
    if (options.first_step) file.add(detail::encode_restart_event(detail::wall_time(), *options.first_step));
    file.flush();
  }

  void add(const std::string& tag, int64_t step, at::Tensor figures, std::string image_summary = {}) {
    pending.push_back({detail::wall_time(), step, tag, std::move(figures), std::move(image_summary)});
    if (std::ssize(pending) >= options.max_pending) write();
  }

  /// Reads all figures and writes them to the file in the order in which they were added.
  void write() {
    std::vector<at::Tensor> figures;
    for (const auto& value : pending) {
      if (value.figures.defined()) figures.push_back(value.figures);
    }
    const auto values = detail::read_figures(figures);
    auto next = values.begin();
    for (const auto& value : pending) {
      std::optional<std::string> summary = value.image_summary;
      if (value.figures.defined()) summary = encode(value.tag, *next++);
      if (summary) file.add(detail::encode_summary_event(value.wall_time, value.step, *summary));
    }
    pending.clear();
    file.flush();
  }

  detail::EventFile file;
  TensorBoardOptions options;
  std::vector<PendingValue> pending;
};

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder, const TensorBoardOptions& options)
    : impl_(std::make_unique<Impl>(folder, options)) {}

TensorBoardWriter::TensorBoardWriter(TensorBoardWriter&&) noexcept = default;

TensorBoardWriter::~TensorBoardWriter() {
  if (!impl_) return;
  try {
    flush();
  } catch (const std::exception& error) {
    fmt::print(stderr, "warning: events for TensorBoard are lost: {}\n", error.what());
  }
}

void TensorBoardWriter::add_scalar(const std::string& tag, const at::Tensor& value, int64_t step) {
  impl_->add(tag, step, detail::waiting_scalar(tag, value));
}

void TensorBoardWriter::add_scalar(const std::string& tag, double value, int64_t step) {
  impl_->add(tag, step, detail::waiting_scalar(value));
}

void TensorBoardWriter::add_histogram(const std::string& tag, const at::Tensor& values, int64_t step,
                                      int64_t num_bins) {
  if (!values.defined() || values.numel() == 0 || values.is_complex()) {
    throw Error(ErrorCode::kInvalidArgument, "the histogram '{}' takes real values, at least one", tag);
  }
  if (num_bins < 1 || num_bins > 10'000) {
    throw Error(ErrorCode::kInvalidArgument, "the histogram '{}' has 1 to 10000 bins, not {}", tag, num_bins);
  }
  impl_->add(tag, step, statistics_of(values.detach(), num_bins));
}

void TensorBoardWriter::add_image(const std::string& tag, const at::Tensor& image, int64_t step) {
  const bool is_image = image.defined() && (image.dim() == 2 || image.dim() == 3) &&
                        (image.scalar_type() == at::kByte || image.is_floating_point());
  if (!is_image) {
    throw Error(ErrorCode::kInvalidArgument,
                "the image '{}' must be a tensor [C, H, W] or [H, W] of uint8, or of floating point in [0, 1]", tag);
  }
  const auto channels = image.dim() == 2 ? image.detach().unsqueeze(0) : image.detach();
  auto pixels = channels.cpu().permute({1, 2, 0});
  // A NaN becomes black.
  if (pixels.is_floating_point()) pixels = pixels.to(at::kFloat).nan_to_num(0).mul(255).clamp(0, 255).to(at::kByte);
  pixels = pixels.contiguous();
  const auto height = pixels.size(0), width = pixels.size(1), num_channels = pixels.size(2);
  auto png = encode_png(bytes_of(pixels), height, width, num_channels);
  impl_->add(tag, step, {}, detail::encode_image(tag, {height, width, num_channels, std::move(png)}));
}

void TensorBoardWriter::flush() { impl_->write(); }

const std::filesystem::path& TensorBoardWriter::path() const { return impl_->file.path(); }

}  // namespace yoke::train
