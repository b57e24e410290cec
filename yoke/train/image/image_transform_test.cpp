#include "yoke/train/image/image_transform.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/support/message_of.h"
#include "tests/support/paths.h"
#include "yoke/base/file.h"
#include "yoke/train/format/safetensors_reader.h"
#include "yoke/train/image/batch_test.h"

namespace yoke::train {
namespace {

using ::testing::HasSubstr;

at::Tensor decoded(const ImageTransform& transform, const std::string& name = "photo.png", int64_t position = 0) {
  const ImageDecoder decoder(transform);
  const std::vector<int64_t> samples{0};
  const auto request = request_for(samples, {.first_position = position});
  const auto batch = decoder.empty(request);
  auto random = request.random(0);
  const auto bytes = read_file(test::reference("images/" + name));
  decoder.decode(std::as_bytes(std::span(bytes)), name, random, batch, 0);
  return batch[0];
}

const ImageTransform kWhole{.height = 45, .width = 61, .random_crop = RandomResizedCrop{1, 1, 61.0 / 45, 61.0 / 45}};

at::Tensor photo() {
  return SafetensorsReader(test::reference("images.safetensors")).tensor("decode/photo.png").permute({2, 0, 1});
}

TEST(ImageTransform, GivesBytesOrNormalisedValues) {
  auto transform = kWhole;
  EXPECT_TRUE(at::equal(decoded(transform), photo()));
  transform.normalization = imagenet_normalization();
  const auto mean = at::tensor({0.485f, 0.456f, 0.406f}).view({3, 1, 1});
  const auto stddev = at::tensor({0.229f, 0.224f, 0.225f}).view({3, 1, 1});
  const auto expected = photo().to(at::kFloat).div(255).sub(mean).div(stddev);
  EXPECT_TRUE(at::equal(decoded(transform), expected));
  transform.dtype = at::kBFloat16;
  EXPECT_TRUE(at::equal(decoded(transform), expected.to(at::kBFloat16)));
  transform.dtype = at::kHalf;
  transform.memory_format = at::MemoryFormat::ChannelsLast;
  const auto channels_last = decoded(transform);
  EXPECT_TRUE(at::equal(channels_last, expected.to(at::kHalf)));
  EXPECT_EQ(channels_last.strides(), (std::vector<int64_t>{1, 183, 3}));
  transform.normalization = Normalization{{0.5}, {0.25}};
  EXPECT_TRUE(at::equal(decoded(transform), photo().to(at::kFloat).div(255).sub(0.5).div(0.25).to(at::kHalf)));
}

TEST(ImageTransform, FlipsLeftAndRight) {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    auto transform = kWhole;
    transform.memory_format = format;
    transform.flip_probability = 1;
    EXPECT_TRUE(at::equal(decoded(transform), photo().flip(2)));
  }
  auto transform = kWhole;
  transform.flip_probability = 0.25;
  int num_flipped = 0;
  for (int64_t position = 0; position < 400; ++position) {
    num_flipped += at::equal(decoded(transform, "photo.png", position), photo()) ? 0 : 1;
  }
  EXPECT_NEAR(num_flipped, 100, 5 * 8.7);  // five standard deviations
}

TEST(ImageTransform, IsAFunctionOfTheRandomNumbers) {
  const ImageTransform transform{.height = 16,
                                 .width = 20,
                                 .random_crop = RandomResizedCrop{},
                                 .flip_probability = 0.5,
                                 .jitter = {0.4, 0.4, 0.4, 0.1}};
  std::set<double> sums;
  for (int64_t position = 0; position < 20; ++position) {
    const auto once = decoded(transform, "420.jpg", position), again = decoded(transform, "420.jpg", position);
    EXPECT_TRUE(at::equal(once, again));
    sums.insert(once.to(at::kDouble).sum().item<double>());
  }
  EXPECT_GE(sums.size(), 19u);
}

// A photo with four times the height and width that are needed is decoded at a quarter of its size. Its mean colour
// stays the same.
TEST(ImageTransform, ShrinksLargePhotos) {
  ImageTransform transform{.height = 11, .width = 11, .shorter_side = 11};
  const auto shrunk = decoded(transform, "444.jpg").to(at::kFloat);
  transform.shrink_on_decode = false;
  const auto exact = decoded(transform, "444.jpg").to(at::kFloat);
  EXPECT_FALSE(at::equal(shrunk, exact));
  EXPECT_NEAR(shrunk.mean().item<double>(), exact.mean().item<double>(), 2);
  EXPECT_LT(shrunk.sub(exact).abs().mean().item<double>(), 8);
}

TEST(ImageTransform, IsChecked) {
  const auto refusal = [](const ImageTransform& transform) {
    return test::message_of([&] { const ImageDecoder decoder(transform); });
  };
  EXPECT_THAT(refusal({.height = 0}), HasSubstr("height 0 and width 224 must be from 1"));
  EXPECT_THAT(refusal({.height = 384}), HasSubstr("shorter_side 256 must be at least height 384"));
  EXPECT_THAT(refusal({.random_crop = RandomResizedCrop{.min_area = 0}}), HasSubstr("areas from 0"));
  EXPECT_THAT(refusal({.random_crop = RandomResizedCrop{.min_ratio = 2}}), HasSubstr("ratios from 2"));
  EXPECT_THAT(refusal({.flip_probability = 1.5}), HasSubstr("flip_probability 1.5"));
  EXPECT_THAT(refusal({.jitter = {.contrast = -1}}), HasSubstr("a jitter of -1"));
  EXPECT_THAT(refusal({.jitter = {.hue = 0.6}}), HasSubstr("at most 0.5"));
  EXPECT_THAT(refusal({.normalization = Normalization{{0, 0}, {1, 1}}}), HasSubstr("it has 2 and 2"));
  EXPECT_THAT(refusal({.normalization = Normalization{{0}, {0}}}), HasSubstr("a stddev of 0"));
  EXPECT_THAT(refusal({.normalization = Normalization{{0}, {1}}, .dtype = at::kDouble}), HasSubstr("kBFloat16"));
  EXPECT_THAT(refusal({.memory_format = at::MemoryFormat::Preserve}), HasSubstr("memory_format"));
  EXPECT_EQ(refusal({.height = 384, .width = 300, .random_crop = RandomResizedCrop{}}), "(nothing thrown)");
}

}  // namespace
}  // namespace yoke::train
