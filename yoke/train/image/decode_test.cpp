#include "yoke/train/image/detail/decode.h"

// clang-format off
#include <cstdio>  // must come before jpeglib.h, which uses it
#include <jpeglib.h>
// clang-format on

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>

#include "tests/support/message_of.h"
#include "tests/support/paths.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/train/format/safetensors_reader.h"

namespace yoke::train::detail {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string image_file(const std::string& name) { return read_file(test::reference("images/" + name)); }

DecodeRequest whole(const ImageInfo& image) { return {1, {.width = image.width, .height = image.height}}; }

Pixels decode(const std::string& bytes, const std::function<DecodeRequest(const ImageInfo&)>& choose = whole,
              int64_t max_pixels = 1 << 20) {
  Pixels pixels;
  decode_image(std::as_bytes(std::span(bytes)), "the file", max_pixels, choose, pixels);
  return pixels;
}

std::string refusal(const std::string& bytes, int64_t max_pixels = 1 << 20) {
  try {
    decode(bytes, whole, max_pixels);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("the file"));
    return error.what();
  }
  return "(nothing thrown)";
}

// Oracle: Pillow's convert("RGB"). Versions of libjpeg-turbo may round the colours of a JPEG differently.
TEST(Decode, EqualsPillow) {
  const SafetensorsReader recorded(test::reference("images.safetensors"));
  int num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::reference("images"))) {
    const std::string name = entry.path().filename();
    const auto expected = recorded.tensor("decode/" + name);
    const auto pixels = decode(image_file(name));
    ASSERT_EQ(pixels.region.width, expected.size(1)) << name;
    ASSERT_EQ(pixels.region.height, expected.size(0)) << name;
    const auto* values = expected.const_data_ptr<uint8_t>();
    int difference = 0;
    for (int64_t i = 0; i < expected.numel(); ++i) {
      difference = std::max(difference, std::abs(values[i] - pixels.rgb[static_cast<size_t>(i)]));
    }
    EXPECT_EQ(difference, 0) << name;
    ++num_files;
  }
  EXPECT_GE(num_files, 20);
}

// Oracle: the same region of the whole decoded image, at all scales.
void expect_same_pixels_for_regions(const std::string& bytes, const std::string& name) {
  for (const int shrink : {1, 2, 4, 8}) {
    bool possible = true;
    ImageInfo size;
    const auto all = decode(bytes, [&](const ImageInfo& image) {
      possible = image.can_shrink || shrink == 1;
      const int divisor = possible ? shrink : 1;
      size = {(image.width + divisor - 1) / divisor, (image.height + divisor - 1) / divisor};
      return DecodeRequest{divisor, {.width = size.width, .height = size.height}};
    });
    if (!possible) continue;
    for (const auto& [left, top, right, bottom] : std::vector<std::array<int, 4>>{
             {0, 0, 2, 2}, {1, 3, 5, 4}, {17, 9, 39, 31}, {32, 16, 48, 33}, {60, 44, 61, 45}}) {
      Region region{left / shrink, top / shrink, 0, 0};
      region.width = std::max(right / shrink - region.left, 1);
      region.height = std::max(bottom / shrink - region.top, 1);
      const auto part = decode(bytes, [&](const ImageInfo&) { return DecodeRequest{shrink, region}; });
      ASSERT_LE(part.region.left, region.left);
      ASSERT_LE(part.region.top, region.top);
      ASSERT_GE(part.region.left + part.region.width, region.left + region.width);
      for (int y = region.top; y < region.top + region.height; ++y) {
        for (int x = region.left; x < region.left + region.width; ++x) {
          for (int c = 0; c < 3; ++c) {
            const auto at = [&](const Pixels& pixels) {
              return int{pixels.rgb[static_cast<size_t>(
                  ((y - pixels.region.top) * pixels.region.width + x - pixels.region.left) * 3 + c)]};
            };
            ASSERT_EQ(at(part), at(all)) << name << " 1/" << shrink << " from " << left << ", " << top << " at " << x
                                         << ", " << y;
          }
        }
      }
    }
  }
}

TEST(Decode, GivesTheSamePixelsForARegion) {
  for (const auto& entry : std::filesystem::directory_iterator(test::reference("images"))) {
    const std::string name = entry.path().filename();
    expect_same_pixels_for_regions(image_file(name), name);
  }
}

// Factors by which libjpeg samples brightness and colours: 2x2 and 1x1 for the usual 4:2:0.
struct Sampling {
  int luma_h, luma_v, chroma_h, chroma_v;

  // libjpeg cannot decode other ratios, nor more than ten blocks at a time.
  bool is_possible() const {
    return luma_h % chroma_h == 0 && luma_v % chroma_v == 0 && luma_h * luma_v + 2 * chroma_h * chroma_v <= 10;
  }
  std::string name() const { return fmt::format("{}x{},{}x{}", luma_h, luma_v, chroma_h, chroma_v); }
};

// A JPEG of 61 x 45 pixels of noise.
std::string noise_jpeg(const Sampling& sampling, bool is_progressive) {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = 61;
  info.image_height = 45;
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  if (is_progressive) jpeg_simple_progression(&info);
  for (int i = 0; i < 3; ++i) {
    info.comp_info[i].h_samp_factor = i == 0 ? sampling.luma_h : sampling.chroma_h;
    info.comp_info[i].v_samp_factor = i == 0 ? sampling.luma_v : sampling.chroma_v;
  }
  jpeg_start_compress(&info, TRUE);
  std::minstd_rand random(1);
  std::array<JSAMPLE, size_t{3} * 61> row;
  while (info.next_scanline < info.image_height) {
    for (auto& value : row) value = static_cast<JSAMPLE>(random() >> 8);
    JSAMPROW rows[] = {row.data()};
    jpeg_write_scanlines(&info, rows, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string bytes(reinterpret_cast<const char*>(memory), size);
  std::free(memory);
  return bytes;
}

TEST(Decode, GivesTheSamePixelsForARegionWithAnySampling) {
  int num_samplings = 0;
  for (int i = 0; i < 4 * 4 * 2 * 2; ++i) {
    const Sampling sampling{1 + i % 4, 1 + i / 4 % 4, 1 + i / 16 % 2, 1 + i / 32};
    if (!sampling.is_possible()) continue;
    for (const bool is_progressive : {false, true}) {
      expect_same_pixels_for_regions(noise_jpeg(sampling, is_progressive), sampling.name());
    }
    ++num_samplings;
  }
  EXPECT_GE(num_samplings, 20);
}

TEST(Decode, RefusesOtherFiles) {
  EXPECT_THAT(refusal(""), HasSubstr("expected a JPEG or PNG image, found an empty file"));
  EXPECT_THAT(refusal("GIF89a..."), HasSubstr("found a file of 9 bytes that begins with 47 49 46 38"));
  EXPECT_THAT(refusal("\xFF"), HasSubstr("found a file of 1 bytes that begins with ff"));
}

// A truncated file must be refused, and not become an image whose missing part is grey.
TEST(Decode, RefusesATruncatedFile) {
  for (const std::string name : {"420.jpg", "progressive.jpg", "restarts.jpg", "grey.png", "interlaced.png"}) {
    const auto bytes = image_file(name);
    const size_t step = bytes.size() / 400 + 1;
    for (size_t size = 0; size < bytes.size(); size += size + 64 < bytes.size() ? step : 1) {
      // A PNG that lacks only a part of its last chunk still has all pixels, but libpng requires the whole chunk.
      EXPECT_NE(refusal(bytes.substr(0, size)), "(nothing thrown)") << name << " of " << size;
    }
  }
  EXPECT_THAT(refusal(image_file("grey.png").substr(0, 1000)), HasSubstr("damaged PNG: truncated"));
  EXPECT_THAT(refusal(image_file("420.jpg").substr(0, 1000)), HasSubstr("damaged JPEG"));
  const auto jpeg = image_file("420.jpg");
  EXPECT_THAT(refusal(jpeg.substr(0, jpeg.size() - 2)), AnyOf(HasSubstr("damaged JPEG"), HasSubstr("truncated JPEG")));
}

// The rows below the region are not decoded, but a truncated file must still be refused.
TEST(Decode, RefusesATruncatedJpegForItsUpperHalfToo) {
  const auto bytes = image_file("444.jpg");
  const auto upper = [](const ImageInfo& image) { return DecodeRequest{1, {.width = image.width, .height = 8}}; };
  EXPECT_EQ(decode(bytes, upper).region.height, 8);
  EXPECT_THAT(test::message_of([&] { decode(bytes.substr(0, bytes.size() * 9 / 10), upper); }, ErrorCode::kDataLoss),
              HasSubstr("truncated JPEG: its"));
}

TEST(Decode, RefusesDamagedData) {
  auto jpeg = image_file("restarts.jpg");
  const size_t restart = jpeg.rfind("\xFF\xD1");
  ASSERT_NE(restart, std::string::npos);
  auto damaged = jpeg;
  damaged.erase(restart - 20, 18);
  EXPECT_THAT(refusal(damaged), HasSubstr("damaged JPEG: Corrupt JPEG data"));
  damaged = jpeg;
  damaged[restart + 1] = '\xD5';
  EXPECT_THAT(refusal(damaged), HasSubstr("damaged JPEG: Corrupt JPEG data"));

  auto png = image_file("grey.png");
  png[png.size() / 2] = static_cast<char>(png[png.size() / 2] ^ 1);
  EXPECT_THAT(refusal(png), HasSubstr("damaged PNG"));
}

// Extra bytes between a file's parts or after its end are accepted, because they change no pixel.
TEST(Decode, AcceptsSuperfluousBytes) {
  const auto jpeg = image_file("420.jpg");
  const auto expected = decode(jpeg).rgb;
  EXPECT_EQ(decode(jpeg + "more").rgb, expected);
  const size_t tables = jpeg.find("\xFF\xC4");
  EXPECT_EQ(decode(jpeg.substr(0, tables) + "xyz" + jpeg.substr(tables)).rgb, expected);  // before a marker
  EXPECT_EQ(decode(jpeg.substr(0, jpeg.size() - 2) + "xyz\xFF\xD9").rgb, expected);       // before the end
  const auto png = image_file("palette.png");
  EXPECT_EQ(decode(png + "more").rgb, decode(png).rgb);
}

// A header that claims 65500 x 65500 pixels must be refused before memory for them is allocated.
TEST(Decode, RefusesHugeImages) {
  auto jpeg = image_file("420.jpg");
  const size_t frame = jpeg.find(std::string("\xFF\xC0\0\x11", 4));
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xFF\xDC\xFF\xDC");
  EXPECT_THAT(refusal(jpeg, 178'956'970), AllOf(HasSubstr("65500 x 65500 pixels"), HasSubstr("max_pixels")));
  EXPECT_THAT(refusal(image_file("photo.png"), 61 * 45 - 1), HasSubstr("61 x 45 pixels; at most 2744 are allowed"));
  EXPECT_EQ(refusal(image_file("photo.png"), 61 * 45), "(nothing thrown)");
}

}  // namespace
}  // namespace yoke::train::detail
