// yoke/train/image/image_transform.h -- how a JPEG or PNG image becomes a row of a batch.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "yoke/train/data/normalization.h"
#include "yoke/train/data/sample_random.h"
#include "yoke/train/data/source.h"

namespace yoke::train {

/// A part of the image. Its area, as a share of the image's area, and its ratio of width to height are random.
struct RandomResizedCrop {
  double min_area = 0.08;
  double max_area = 1;
  double min_ratio = 3.0 / 4;
  double max_ratio = 4.0 / 3;
};

/// Changes the four properties in a random order. With x as a field's value, brightness, contrast and saturation are
/// multiplied by a random factor in [max(0, 1 - x), 1 + x]; hue is shifted by a random share in [-x, x] of the hue
/// circle. If a field is 0, that property is unchanged. Changing the hue takes as long as decoding.
struct ColorJitter {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;  ///< At most 0.5.
};

/// The default is torchvision's evaluation: the shorter side is resized to `shorter_side`, and the centre is taken.
/// Training adds `.random_crop = RandomResizedCrop{}, .flip_probability = 0.5`.
struct ImageTransform {
  int64_t height = 224;
  int64_t width = 224;
  int64_t shorter_side = 256;  ///< At least height and width. Not used with random_crop.
  std::optional<RandomResizedCrop> random_crop;
  double flip_probability = 0;  ///< Probability of mirroring left and right.
  ColorJitter jitter;
  std::optional<Normalization> normalization;                     ///< One entry or three. If unset, rows are bytes.
  at::ScalarType dtype = at::kFloat;                              ///< Of normalised rows: kFloat, kBFloat16 or kHalf.
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;  ///< Or ChannelsLast.
  /// If true, decodes a large JPEG at a half, a quarter or an eighth of its size, if it still has at least as many
  /// pixels as the row. The pixels then differ slightly from those of an image that is decoded whole and resized.
  bool shrink_on_decode = true;
  int64_t max_pixels = 178'956'970;  ///< Images with more pixels are refused. Pillow warns above the default value.
};

/// The mean and standard deviation of ImageNet's training images, which most published models were trained with.
Normalization imagenet_normalization();

/// Decodes images to rows. The bytes of a row differ from Pillow's and torchvision's by at most 1, unless
/// shrink_on_decode has shrunk the image. From the same bytes, normalisation computes the same bits as ToTensor and
/// Normalize.
///
/// Formats  JPEG and PNG, recognised by their first bytes, and converted to RGB as Pillow does: see docs/images.md.
///          Like torchvision, it does not apply an orientation in EXIF data.
/// Memory   each thread keeps its buffers for the next image.
/// Threads  any number, at the same time.
class ImageDecoder {
 public:
  /// Errors  kInvalidArgument: an option that is out of range.
  explicit ImageDecoder(const ImageTransform& transform);

  const ImageTransform& transform() const;

  /// Allocates the batch: [request.size(), 3, height, width].
  at::Tensor empty(const BatchRequest& request) const;

  /// Makes row `row` of a batch from a file's bytes. `name` is the file's name for errors.
  /// Errors  kDataLoss: the file is not a JPEG or PNG, is damaged or truncated, or has more than max_pixels pixels.
  void decode(std::span<const std::byte> bytes, std::string_view name, SampleRandom& random, const at::Tensor& batch,
              int64_t row) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace yoke::train
