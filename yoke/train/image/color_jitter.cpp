#include "yoke/train/image/detail/color_jitter.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace yoke::train::detail {
namespace {

uint8_t blend(int from, int to, float factor) {
  const float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
  return static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f));
}

// Luma of ITU-R 601, computed with 16 fraction bits like Pillow's convert("L").
int grey(const uint8_t* rgb) { return (19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 0x8000) >> 16; }

void blend_all(std::span<uint8_t> rgb, int from, double factor) {
  std::array<uint8_t, 256> table;
  for (int value = 0; value < 256; ++value) {
    table[static_cast<size_t>(value)] = blend(from, value, static_cast<float>(factor));
  }
  for (uint8_t& value : rgb) value = table[value];
}

struct Hsv {
  int hue, saturation, value;  // 0 to 255
};

// The formulas are those of Python's colorsys. Each step uses double or float where Pillow does: the results are
// truncated to integers, so a different rounding could change them.
Hsv to_hsv(const uint8_t* rgb) {
  const int most = std::max({rgb[0], rgb[1], rgb[2]}), least = std::min({rgb[0], rgb[1], rgb[2]});
  if (most == least) return {0, 0, most};
  const auto range = static_cast<float>(most - least);
  const float red = static_cast<float>(most - rgb[0]) / range, green = static_cast<float>(most - rgb[1]) / range,
              blue = static_cast<float>(most - rgb[2]) / range;
  float sixth = 0;
  if (rgb[0] == most) {
    sixth = blue - green;
  } else if (rgb[1] == most) {
    sixth = static_cast<float>(2.0 + red - blue);
  } else {
    sixth = static_cast<float>(4.0 + green - red);
  }
  const auto hue = static_cast<float>(std::fmod(sixth / 6.0 + 1.0, 1.0));
  return {static_cast<int>(hue * 255.0), static_cast<int>(range / static_cast<float>(most) * 255.0), most};
}

void from_hsv(const Hsv& hsv, uint8_t* rgb) {
  const double sixth = hsv.hue * 6.0 / 255;
  const auto part = static_cast<float>(sixth - std::floor(sixth)),
             saturation = static_cast<float>(hsv.saturation / 255.0);
  const auto faded = [&](double by) { return static_cast<uint8_t>(std::lround(hsv.value * (1.0 - by))); };
  const auto v = static_cast<uint8_t>(hsv.value), p = faded(saturation), q = faded(saturation * part),
             t = faded(saturation * (1.0 - part));
  const std::array<std::array<uint8_t, 3>, 6> sectors{
      {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}}};
  std::copy_n(sectors[static_cast<size_t>(sixth) % 6].begin(), 3, rgb);
}

}  // namespace

void adjust_brightness(std::span<uint8_t> rgb, double factor) { blend_all(rgb, 0, factor); }

void adjust_contrast(std::span<uint8_t> rgb, double factor) {
  int64_t sum = 0;
  for (size_t i = 0; i + 2 < rgb.size(); i += 3) sum += grey(&rgb[i]);
  blend_all(rgb, static_cast<int>(static_cast<double>(sum) / static_cast<double>(rgb.size() / 3) + 0.5), factor);
}

void adjust_saturation(std::span<uint8_t> rgb, double factor) {
  for (size_t i = 0; i + 2 < rgb.size(); i += 3) {
    const int from = grey(&rgb[i]);
    for (size_t c = i; c < i + 3; ++c) rgb[c] = blend(from, rgb[c], static_cast<float>(factor));
  }
}

void adjust_hue(std::span<uint8_t> rgb, double shift) {
  const int steps = static_cast<int>(shift * 255);
  for (size_t i = 0; i + 2 < rgb.size(); i += 3) {
    Hsv hsv = to_hsv(&rgb[i]);
    hsv.hue = (hsv.hue + steps) & 255;
    from_hsv(hsv, &rgb[i]);
  }
}

}  // namespace yoke::train::detail
