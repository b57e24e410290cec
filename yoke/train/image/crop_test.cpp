#include "yoke/train/image/detail/crop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "tests/support/paths.h"
#include "yoke/base/file.h"
#include "yoke/train/format/safetensors_reader.h"
#include "yoke/train/image/detail/color_jitter.h"

namespace yoke::train::detail {
namespace {

// Decodes and resizes the crop of photo.png. Pixels outside of the requested region are not decoded, so using one would
// change the result.
std::vector<uint8_t> make(const std::function<Crop(const ImageInfo&)>& choose) {
  const auto file = read_file(test::reference("images/photo.png"));
  Pixels pixels;
  std::optional<Taps> x, y;
  decode_image(
      std::as_bytes(std::span(file)), "photo.png", 1 << 20,
      [&](const ImageInfo& image) {
        const Crop crop = choose(image);
        x.emplace(crop.x);
        y.emplace(crop.y);
        return DecodeRequest{crop.shrink, {x->low, y->low, x->high - x->low, y->high - y->low}};
      },
      pixels);
  std::vector<uint8_t> out(3 * x->first.size() * y->first.size() + 1);
  std::vector<uint16_t> rows;
  resize(pixels, *x, *y, out.data(), rows);
  out.pop_back();
  return out;
}

int largest_difference(const std::vector<uint8_t>& ours, const at::Tensor& recorded) {
  EXPECT_EQ(static_cast<int64_t>(ours.size()), recorded.numel());
  const auto* values = recorded.const_data_ptr<uint8_t>();
  int difference = 0;
  for (size_t i = 0; i < ours.size(); ++i) difference = std::max(difference, std::abs(ours[i] - values[i]));
  return difference;
}

const SafetensorsReader& recorded() {
  static const SafetensorsReader reader(test::reference("images.safetensors"));
  return reader;
}

TEST(Resize, EqualsPillowWithinOne) {
  int num_cases = 0;
  for (const auto& name : recorded().names()) {
    Region region;
    OutputSize out;
    int side = 0;
    const auto expected = recorded().tensor(name);
    if (std::sscanf(name.c_str(), "resize/%d,%d,%d,%d/%dx%d", &region.left, &region.top, &region.width, &region.height,
                    &out.width, &out.height) == 6) {
      EXPECT_LE(largest_difference(make([&](const ImageInfo&) { return resized_crop(region, out); }), expected), 1)
          << name;
      ++num_cases;
    } else if (std::sscanf(name.c_str(), "centre/%d/%dx%d", &side, &out.width, &out.height) == 3) {
      EXPECT_LE(
          largest_difference(make([&](const ImageInfo& image) { return centre_crop(image, side, out); }), expected), 1)
          << name;
      ++num_cases;
    }
  }
  EXPECT_EQ(num_cases, 30);
}

// An image of one colour keeps its colour when it is resized, for any original size.
TEST(Resize, KeepsAPlainColour) {
  for (const int size : {1, 2, 7, 100, 1000, 3001}) {
    for (const int value : {0, 1, 127, 254, 255}) {
      const Taps x({.end = static_cast<double>(size), .high = size, .out_size = 5, .out_count = 5});
      const Pixels pixels{{.width = size, .height = size},
                          std::vector<uint8_t>(3 * static_cast<size_t>(size * size), static_cast<uint8_t>(value))};
      std::vector<uint8_t> out(3 * 5 * 5 + 1);
      std::vector<uint16_t> rows;
      resize(pixels, x, x, out.data(), rows);
      out.pop_back();
      EXPECT_EQ(out, std::vector<uint8_t>(3 * 5 * 5, static_cast<uint8_t>(value))) << size << " pixels of " << value;
    }
  }
}

TEST(Crop, IsShrunkOnlyToAtLeastTheOutput) {
  const auto shrink_of = [](int width, int height, OutputSize out) {
    const ImageInfo image{width, height, true};
    Crop crop = resized_crop({.width = width, .height = height}, out);
    shrink(crop, image);
    EXPECT_EQ(crop.x.high, (width + crop.shrink - 1) / crop.shrink);
    EXPECT_EQ(crop.x.end, static_cast<double>(width) / crop.shrink);
    return crop.shrink;
  };
  EXPECT_EQ(shrink_of(447, 447, {224, 224}), 1);
  EXPECT_EQ(shrink_of(448, 448, {224, 224}), 2);
  EXPECT_EQ(shrink_of(448, 447, {224, 224}), 1);
  EXPECT_EQ(shrink_of(4000, 897, {224, 224}), 4);
  EXPECT_EQ(shrink_of(9999, 9999, {224, 224}), 8);
  EXPECT_EQ(shrink_of(10, 10, {224, 224}), 1);
}

// Oracle: the mean and deviation of 20000 random crops of torchvision, compared with 20000 of ours.
TEST(Crop, RandomOnesAreDistributedAsTorchvisions) {
  for (const auto& [width, height] : {std::pair{500, 375}, {60, 300}}) {
    const auto expected = recorded().tensor("random_crop/" + std::to_string(width) + "x" + std::to_string(height));
    const auto* mean = expected.const_data_ptr<double>();
    const auto* deviation = mean + 4;
    std::array<double, 4> sum{}, squares{};
    constexpr int kCount = 20000;
    for (int i = 0; i < kCount; ++i) {
      SampleRandom random(1, 2, i);
      const auto region = random_region({width, height}, {0.08, 1, 0.75, 4.0 / 3}, random);
      ASSERT_GE(std::min({region.left, region.top, region.width - 1, region.height - 1}), 0);
      ASSERT_LE(region.left + region.width, width);
      ASSERT_LE(region.top + region.height, height);
      const std::array<int, 4> values{region.left, region.top, region.width, region.height};
      for (size_t k = 0; k < 4; ++k) {
        sum[k] += values[k];
        squares[k] += static_cast<double>(values[k]) * values[k];
      }
    }
    for (size_t k = 0; k < 4; ++k) {
      // Each mean has the standard error deviation / sqrt(20000), and their difference sqrt(2) times that. Five
      // standard errors are allowed.
      const double allowed = 5 * deviation[k] * std::sqrt(2.0 / kCount);
      EXPECT_NEAR(sum[k] / kCount, mean[k], allowed) << k;
      EXPECT_NEAR(std::sqrt(squares[k] / kCount - sum[k] / kCount * sum[k] / kCount), deviation[k], allowed) << k;
    }
  }
}

// Oracle: Pillow's ImageEnhance, through torchvision, for all factors.
TEST(ColorJitter, EqualsPillow) {
  const auto photo = make([](const ImageInfo& image) {
    return resized_crop({.width = image.width, .height = image.height}, {image.width, image.height});
  });
  ASSERT_EQ(largest_difference(photo, recorded().tensor("decode/photo.png")), 0);
  int num_cases = 0;
  for (const auto& name : recorded().names()) {
    const auto slash = name.find('/');
    const auto operation = name.substr(0, slash);
    auto adjusted = photo;
    if (operation == "brightness") {
      adjust_brightness(adjusted, std::stod(name.substr(slash + 1)));
    } else if (operation == "contrast") {
      adjust_contrast(adjusted, std::stod(name.substr(slash + 1)));
    } else if (operation == "saturation") {
      adjust_saturation(adjusted, std::stod(name.substr(slash + 1)));
    } else if (operation == "hue") {
      adjust_hue(adjusted, std::stod(name.substr(slash + 1)));
    } else {
      continue;
    }
    ++num_cases;
    EXPECT_LE(largest_difference(adjusted, recorded().tensor(name)), 0) << name;
  }
  EXPECT_EQ(num_cases, 23);
}

}  // namespace
}  // namespace yoke::train::detail
