#include "yoke/train/image/image_transform.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <variant>
#include <vector>

#include "yoke/base/text.h"
#include "yoke/train/data/detail/check.h"
#include "yoke/train/data/detail/normalization_tables.h"
#include "yoke/train/image/detail/color_jitter.h"
#include "yoke/train/image/detail/crop.h"
#include "yoke/train/image/detail/decode.h"
#include "yoke/train/image/detail/resize.h"

namespace yoke::train {
namespace {

using detail::ByteTables;
using detail::check_that;

void check_transform(const ImageTransform& transform) {
  constexpr int64_t kMaxSide = 1 << 14;
  check_that(
      std::min(transform.height, transform.width) >= 1 && std::max(transform.height, transform.width) <= kMaxSide,
      "image transform: height {} and width {} must be from 1 to {}", transform.height, transform.width, kMaxSide);
  if (const auto& crop = transform.random_crop) {
    check_that(crop->min_area > 0 && crop->min_area <= crop->max_area && crop->max_area <= 1,
               "image transform: areas from {} to {} must be ascending and in (0, 1]", crop->min_area, crop->max_area);
    check_that(crop->min_ratio > 0 && crop->min_ratio <= crop->max_ratio && std::isfinite(crop->max_ratio),
               "image transform: ratios from {} to {} must be ascending, positive and finite", crop->min_ratio,
               crop->max_ratio);
  } else {
    check_that(
        transform.shorter_side >= std::max(transform.height, transform.width) && transform.shorter_side <= kMaxSide,
        "image transform: shorter_side {} must be at least height {} and width {}, and at most {}",
        transform.shorter_side, transform.height, transform.width, kMaxSide);
  }
  check_that(transform.flip_probability >= 0 && transform.flip_probability <= 1,
             "image transform: flip_probability {} is not in [0, 1]", transform.flip_probability);
  const auto& jitter = transform.jitter;
  for (const double strength : {jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue}) {
    check_that(strength >= 0 && std::isfinite(strength), "image transform: a jitter of {} must be at least 0",
               strength);
  }
  check_that(jitter.hue <= 0.5, "image transform: a jitter of hue of {} must be at most 0.5", jitter.hue);
  check_that(transform.memory_format == at::MemoryFormat::Contiguous ||
                 transform.memory_format == at::MemoryFormat::ChannelsLast,
             "image transform: memory_format must be Contiguous or ChannelsLast");
  check_that(transform.max_pixels >= 1, "image transform: max_pixels {} must be positive", transform.max_pixels);
  if (const auto& normalization = transform.normalization) {
    const size_t count = normalization->mean.size();
    check_that((count == 1 || count == 3) && normalization->stddev.size() == count,
               "image transform: normalization needs one mean and stddev, or three; it has {} and {}", count,
               normalization->stddev.size());
    for (const double stddev : normalization->stddev)
      check_that(stddev > 0, "image transform: a stddev of {} must be positive", stddev);
    check_that(transform.dtype == at::kFloat || transform.dtype == at::kBFloat16 || transform.dtype == at::kHalf,
               "image transform: normalised rows are kFloat, kBFloat16 or kHalf");
  }
}

using Tables = std::variant<ByteTables<uint8_t>, ByteTables<float>, ByteTables<uint16_t>>;

// One table per channel.
Tables make_image_tables(const ImageTransform& transform) {
  if (!transform.normalization) {
    ByteTables<uint8_t> tables(3);
    for (auto& table : tables) std::iota(table.begin(), table.end(), uint8_t{0});
    return tables;
  }
  return std::visit(
      [](auto tables) -> Tables {
        if (tables.size() == 1) tables.resize(3, tables[0]);
        return tables;
      },
      detail::make_normalization_tables(*transform.normalization, transform.dtype));
}

// store() writes [pixels, 3] bytes as [3, height, width] or [height, width, 3] values.
struct RowShape {
  size_t height, width;
  bool flip, channels_last;
};
template <typename T>
void store(const uint8_t* rgb, const RowShape& shape, const ByteTables<T>& tables, T* to) {
  const size_t pixels = shape.height * shape.width;
  const size_t pixel_step = shape.channels_last ? 3 : 1, channel_step = shape.channels_last ? 1 : pixels;
  for (size_t y = 0; y < shape.height; ++y) {
    const uint8_t* from = rgb + 3 * y * shape.width;
    // A flipped row is read backwards: the step is -3 modulo 2^64, so adding it to the pointer wraps around.
    const size_t step = shape.flip ? -size_t{3} : size_t{3};
    if (shape.flip) from += 3 * (shape.width - 1);
    T* row = to + y * shape.width * pixel_step;
    if (!shape.channels_last) {
      for (size_t c = 0; c < 3; ++c) {
        const auto& table = tables[c];
        T* const plane = row + c * channel_step;
        const uint8_t* at = from + c;
        for (size_t x = 0; x < shape.width; ++x, at += step) plane[x] = table[*at];
      }
      continue;
    }
    for (size_t x = 0; x < shape.width; ++x, from += step, row += pixel_step) {
      for (size_t c = 0; c < 3; ++c) row[c * channel_step] = tables[c][from[c]];
    }
  }
}

void jitter_colors(std::span<uint8_t> rgb, const ColorJitter& jitter, SampleRandom& random) {
  std::array<int, 4> order{0, 1, 2, 3};
  for (int64_t i = 3; i > 0; --i)
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(random.below(i + 1))]);
  const auto factor = [&](double strength) { return random.uniform(std::max(0.0, 1 - strength), 1 + strength); };
  for (const int property : order) {
    if (property == 0 && jitter.brightness > 0) detail::adjust_brightness(rgb, factor(jitter.brightness));
    if (property == 1 && jitter.contrast > 0) detail::adjust_contrast(rgb, factor(jitter.contrast));
    if (property == 2 && jitter.saturation > 0) detail::adjust_saturation(rgb, factor(jitter.saturation));
    if (property == 3 && jitter.hue > 0) detail::adjust_hue(rgb, random.uniform(-jitter.hue, jitter.hue));
  }
}

}  // namespace

Normalization imagenet_normalization() { return {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}}; }

struct ImageDecoder::Impl {
  ImageTransform transform;
  Tables tables;

  detail::Crop choose_crop(const detail::ImageInfo& image, SampleRandom& random) const {
    const detail::OutputSize out{static_cast<int>(transform.width), static_cast<int>(transform.height)};
    auto crop = [&] {
      if (!transform.random_crop) return detail::centre_crop(image, static_cast<int>(transform.shorter_side), out);
      const auto& range = *transform.random_crop;
      return detail::resized_crop(
          detail::random_region(image, {range.min_area, range.max_area, range.min_ratio, range.max_ratio}, random),
          out);
    }();
    if (transform.shrink_on_decode && image.can_shrink) detail::shrink(crop, image);
    return crop;
  }
};

ImageDecoder::ImageDecoder(const ImageTransform& transform) {
  check_transform(transform);
  impl_ = std::make_shared<const Impl>(Impl{transform, make_image_tables(transform)});
}

const ImageTransform& ImageDecoder::transform() const { return impl_->transform; }

at::Tensor ImageDecoder::empty(const BatchRequest& request) const {
  const auto& transform = impl_->transform;
  return request.empty({request.size(), 3, transform.height, transform.width},
                       transform.normalization ? transform.dtype : at::kByte, transform.memory_format);
}

void ImageDecoder::decode(std::span<const std::byte> bytes, std::string_view name, SampleRandom& random,
                          const at::Tensor& batch, int64_t row) const {
  struct Buffers {
    detail::Pixels pixels;
    std::vector<uint8_t> resized;
    std::vector<uint16_t> rows;
  };
  static thread_local Buffers buffers;
  const auto& transform = impl_->transform;

  std::optional<detail::Taps> x, y;
  detail::decode_image(
      bytes, printable(name), transform.max_pixels,
      [&](const detail::ImageInfo& image) -> detail::DecodeRequest {
        const auto crop = impl_->choose_crop(image, random);
        x.emplace(crop.x);
        y.emplace(crop.y);
        return {crop.shrink, {.left = x->low, .top = y->low, .width = x->high - x->low, .height = y->high - y->low}};
      },
      buffers.pixels);

  const RowShape shape{static_cast<size_t>(transform.height), static_cast<size_t>(transform.width),
                       random.chance(transform.flip_probability),
                       transform.memory_format == at::MemoryFormat::ChannelsLast};
  const size_t num_values = 3 * shape.height * shape.width;
  buffers.resized.resize(num_values + 1);
  detail::resize(buffers.pixels, *x, *y, buffers.resized.data(), buffers.rows);
  jitter_colors(std::span(buffers.resized).first(num_values), transform.jitter, random);
  std::visit(
      [&](const auto& tables) {
        using Value = typename std::decay_t<decltype(tables)>::value_type::value_type;
        store(buffers.resized.data(), shape, tables,
              static_cast<Value*>(batch.mutable_data_ptr()) + static_cast<size_t>(row) * num_values);
      },
      impl_->tables);

  constexpr size_t kKeptBytes = size_t{64} << 20;  // so that threads do not keep the memory of a few huge images
  if (buffers.pixels.rgb.size() > kKeptBytes) buffers.pixels.rgb = {};
}

}  // namespace yoke::train
