#include "recipes/common/pictures.h"

#include <algorithm>
#include <cmath>

#include "yoke/train/data/sample_random.h"

namespace recipes {
namespace {

/// Whether the point belongs to the shape. The shape is about as large as [-1, 1] x [-1, 1].
bool is_inside(int64_t shape, double x, double y) {
  const double radius = std::sqrt(x * x + y * y), side = std::max(std::abs(x), std::abs(y));
  const auto is_even = [](double value) { return static_cast<int64_t>(std::floor(value)) % 2 == 0; };
  switch (shape) {
    case 0: return radius < 1;
    case 1: return radius < 1 && radius > 0.6;
    case 2: return side < 0.9;
    case 3: return side < 0.9 && side > 0.55;
    case 4: return y < 0.8 && y > 2 * std::abs(x) - 1;
    case 5: return side < 1 && std::min(std::abs(x), std::abs(y)) < 0.3;
    case 6: return side < 1 && is_even(2.5 * (y + 4));
    case 7: return side < 1 && is_even(2.5 * (x + 4));
    case 8: return side < 1 && is_even(2.5 * (x + 4)) == is_even(2.5 * (y + 4));
    default: return side < 1 && is_even(2 * (x + y + 8));
  }
}

}  // namespace

std::vector<uint8_t> draw_picture(int64_t shape, int64_t number, int64_t size) {
  yoke::train::SampleRandom random(0x70696374, shape, number);
  const double half = random.uniform(0.28, 0.45), room = 0.5 - half;  // in units of the picture's side
  const double centre_x = 0.5 + random.uniform(-room, room), centre_y = 0.5 + random.uniform(-room, room);
  std::array<double, 3> front{}, back{};
  double contrast = 0;
  while (contrast < 90) {  // the sum over the channels; enough to see the shape under the noise
    contrast = 0;
    for (size_t channel = 0; channel < 3; ++channel) {
      front[channel] = random.uniform(20, 235);
      back[channel] = random.uniform(20, 235);
      contrast += std::abs(front[channel] - back[channel]);
    }
  }
  std::vector<uint8_t> bytes;
  bytes.reserve(static_cast<size_t>(size * size * 3));
  for (int64_t row = 0; row < size; ++row) {
    for (int64_t column = 0; column < size; ++column) {
      const double x = (static_cast<double>(column) + 0.5) / static_cast<double>(size) - centre_x;
      const double y = (static_cast<double>(row) + 0.5) / static_cast<double>(size) - centre_y;
      const auto& colour = is_inside(shape, x / half, y / half) ? front : back;
      for (const double value : colour) {
        bytes.push_back(static_cast<uint8_t>(std::clamp(value + random.uniform(-20, 20), 0.0, 255.0)));
      }
    }
  }
  return bytes;
}

}  // namespace recipes
