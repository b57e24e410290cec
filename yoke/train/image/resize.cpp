#include "yoke/train/image/detail/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace yoke::train::detail {
namespace {

constexpr int kRowBits = 7;  // that values between the two directions have more than bytes

// The weighted sum of rows, with kRowBits more bits. Each product is the upper half of one of 16 by 16 bits, which
// every vector unit has, so that the compiler's own vectors suffice.
void sum_rows(const uint8_t* rows, size_t row_bytes, const int16_t* weights, int num_weights, size_t count,
              uint16_t* __restrict out) {
  // Half a unit for each product, whose fraction is cut off. The sum stays below 2^15.
  std::fill_n(out, count, static_cast<uint16_t>(std::min(num_weights / 2, 127)));
  for (int k = 0; k < num_weights; ++k) {
    if (weights[k] == 0) continue;
    const uint8_t* __restrict row = rows + static_cast<size_t>(k) * row_bytes;
    const auto weight = static_cast<uint16_t>(weights[k] << (kRowBits + 8 - Taps::kBits));
    for (size_t i = 0; i < count; ++i) {
      const auto value = static_cast<uint16_t>(row[i] << 8);
      out[i] = static_cast<uint16_t>(out[i] + static_cast<uint16_t>(uint32_t{value} * weight >> 16));
    }
  }
}

// One pixel of the result: three weighted sums over `num_weights` neighbours. Writes four bytes and reads four values
// beyond the last neighbour.
inline void sum_columns(const uint16_t* from, const int16_t* weights, int num_weights, uint8_t* to) {
  constexpr int kShift = Taps::kBits + kRowBits, kHalf = 1 << (kShift - 1);
#ifdef __SSE2__
  // Two neighbours a step; the fourth value of each is the red of the next one and not used.
  __m128i sums = _mm_set1_epi32(kHalf);
  for (int k = 0; k < num_weights; k += 2, from += 6) {
    const __m128i left = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    const __m128i right = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 3));
    int pair;
    std::memcpy(&pair, weights + k, sizeof pair);
    sums = _mm_add_epi32(sums, _mm_madd_epi16(_mm_unpacklo_epi16(left, right), _mm_set1_epi32(pair)));
  }
  sums = _mm_srai_epi32(sums, kShift);
  sums = _mm_packs_epi32(sums, sums);
  const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(sums, sums));
  std::memcpy(to, &bytes, sizeof bytes);
#else
  int sums[3] = {kHalf, kHalf, kHalf};
  for (int k = 0; k < num_weights; ++k, from += 3) {
    for (int c = 0; c < 3; ++c) sums[c] += weights[k] * from[c];
  }
  for (int c = 0; c < 3; ++c) to[c] = static_cast<uint8_t>(std::clamp(sums[c] >> kShift, 0, 255));
#endif
}

}  // namespace

Taps::Taps(const Axis& axis) {
  const double scale = (axis.end - axis.begin) / axis.out_size;
  const double support = std::max(scale, 1.0);  // the triangle's half width; when enlarging, its neighbours
  width = 2 * static_cast<int>(std::ceil(support)) + 2;
  first.resize(static_cast<size_t>(axis.out_count));
  weights.resize(first.size() * static_cast<size_t>(width));
  low = axis.high;
  high = axis.low;
  std::vector<double> exact(static_cast<size_t>(width));
  for (size_t i = 0; i < first.size(); ++i) {
    // The rounding of the two ends is Pillow's: they are the pixels whose centres are in the triangle, or one more.
    const double centre = axis.begin + (axis.out_first + static_cast<double>(i) + 0.5) * scale;
    const int from = std::clamp(static_cast<int>(std::floor(centre - support + 0.5)), axis.low, axis.high - 1);
    const int to = std::clamp(static_cast<int>(std::floor(centre + support + 0.5)), from + 1, axis.high);
    double sum = 0;
    for (int k = from; k < to; ++k) {
      const double weight = std::max(1 - std::abs((k - centre + 0.5) / support), 0.0);
      exact[static_cast<size_t>(k - from)] = weight;
      sum += weight;
    }
    if (sum == 0) exact[0] = sum = 1;
    // The sums are rounded, not the weights, so that they end at kOne and no error adds up.
    double so_far = 0;
    int rounded = 0;
    for (int k = 0; k < to - from; ++k) {
      so_far += exact[static_cast<size_t>(k)];
      const int next = static_cast<int>(std::lround(so_far / sum * kOne));
      weights[i * static_cast<size_t>(width) + static_cast<size_t>(k)] = static_cast<int16_t>(next - rounded);
      rounded = next;
    }
    first[i] = from;
    low = std::min(low, from);
    high = std::max(high, to);
  }
}

void resize(const Pixels& pixels, const Taps& x, const Taps& y, uint8_t* out, std::vector<uint16_t>& rows) {
  const size_t row_bytes = 3 * static_cast<size_t>(pixels.region.width);
  const size_t count = 3 * static_cast<size_t>(x.high - x.low);
  // Weights of zero are multiplied with what follows the row.
  rows.resize(std::max(rows.size(), count + 3 * static_cast<size_t>(x.width) + 4));
  for (size_t i = 0; i < y.first.size(); ++i) {
    const size_t top = static_cast<size_t>(y.first[i] - pixels.region.top);
    const size_t left = static_cast<size_t>(x.low - pixels.region.left);
    sum_rows(pixels.rgb.data() + top * row_bytes + 3 * left, row_bytes,
             y.weights.data() + i * static_cast<size_t>(y.width), y.width, count, rows.data());
    for (size_t j = 0; j < x.first.size(); ++j, out += 3) {
      sum_columns(rows.data() + 3 * static_cast<size_t>(x.first[j] - x.low),
                  x.weights.data() + j * static_cast<size_t>(x.width), x.width, out);
    }
  }
}

}  // namespace yoke::train::detail
