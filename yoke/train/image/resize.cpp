#include "yoke/train/image/detail/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace yoke::train::detail {
namespace {

constexpr int kRowBits = 7;  // after the first direction, values have this many bits more than a byte

// Computes the weighted sum of rows, with kRowBits more bits than bytes.
void sum_many_rows(const uint8_t* rows, size_t row_bytes, std::span<const int16_t> weights, size_t count,
                   uint16_t* __restrict out) {
  constexpr size_t kBlock = 64;
  constexpr int kShift = Taps::kBits - kRowBits;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t size = std::min(kBlock, count - begin);
    int32_t sums[kBlock];
    std::fill_n(sums, size, 1 << (kShift - 1));
    for (size_t k = 0; k < weights.size(); ++k) {
      if (weights[k] == 0) continue;  // a row with weight 0 may be outside of `rows`
      const uint8_t* __restrict row = rows + k * row_bytes + begin;
      for (size_t i = 0; i < size; ++i) sums[i] += weights[k] * row[i];
    }
    for (size_t i = 0; i < size; ++i) out[begin + i] = static_cast<uint16_t>(sums[i] >> kShift);
  }
}

// sum_many_rows for a small number of rows, the usual case, computed in 16 bits. Each product is the upper half of a
// product of two 16-bit numbers. All SIMD instruction sets have this operation, and the compiler vectorises the loop. A
// resize to 224 x 224 takes two thirds of the time of sum_many_rows. Code for AVX2 gains nothing that could be
// measured.
void sum_rows(const uint8_t* rows, size_t row_bytes, std::span<const int16_t> weights, size_t count,
              uint16_t* __restrict out) {
  constexpr size_t kFew = 32;  // each product is truncated by less than one unit, so half a unit is added per product
  if (weights.size() > kFew) return sum_many_rows(rows, row_bytes, weights, count, out);
  std::fill_n(out, count, static_cast<uint16_t>(weights.size() / 2));
  for (size_t k = 0; k < weights.size(); ++k) {
    if (weights[k] == 0) continue;
    const uint8_t* __restrict row = rows + k * row_bytes;
    const auto weight = static_cast<uint16_t>(weights[k] << (kRowBits + 8 - Taps::kBits));
    for (size_t i = 0; i < count; ++i) {
      const auto value = static_cast<uint16_t>(row[i] << 8);
      out[i] = static_cast<uint16_t>(out[i] + static_cast<uint16_t>(uint32_t{value} * weight >> 16));
    }
  }
}

// Computes one row of the result: for each pixel, three weighted sums over neighbours. Writes four bytes per pixel, and
// reads four values beyond the pixel's last neighbour.
template <int kWidth>
void sum_columns(const uint16_t* __restrict row, const Taps& taps, uint8_t* __restrict out) {
  constexpr int kShift = Taps::kBits + kRowBits, kHalf = 1 << (kShift - 1);
  // A byte write may alias any object, so without these copies the compiler would reload the pointers for each pixel.
  const int* __restrict first = taps.first.data();
  const int16_t* __restrict weights = taps.weights.data();
  const int low = taps.low, width = kWidth > 0 ? kWidth : taps.width;
  for (size_t i = 0; i < taps.first.size(); ++i, weights += width, out += 3) {
    const uint16_t* from = row + 3 * (first[i] - low);
#ifdef __SSE2__
    // Each iteration adds two neighbours. Four values of each neighbour are loaded. The fourth value is the next
    // pixel's red and is not used.
    __m128i sums = _mm_set1_epi32(kHalf);
    for (int k = 0; k < width; k += 2, from += 6) {
      const __m128i left = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
      const __m128i right = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 3));
      int pair;
      std::memcpy(&pair, weights + k, sizeof pair);
      sums = _mm_add_epi32(sums, _mm_madd_epi16(_mm_unpacklo_epi16(left, right), _mm_set1_epi32(pair)));
    }
    sums = _mm_srai_epi32(sums, kShift);
    sums = _mm_packs_epi32(sums, sums);
    const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(sums, sums));
    std::memcpy(out, &bytes, sizeof bytes);
#else
    int sums[3] = {kHalf, kHalf, kHalf};
    for (int k = 0; k < width; ++k, from += 3) {
      for (int c = 0; c < 3; ++c) sums[c] += weights[k] * from[c];
    }
    for (int c = 0; c < 3; ++c) out[c] = static_cast<uint8_t>(std::clamp(sums[c] >> kShift, 0, 255));
#endif
  }
}

}  // namespace

Taps::Taps(const Axis& axis) {
  const double scale = (axis.end - axis.begin) / axis.out_size;
  const double support = std::max(scale, 1.0);  // half width of the triangle filter
  const auto centre_of = [&](size_t i) { return axis.begin + (axis.out_first + static_cast<double>(i) + 0.5) * scale; };
  std::vector<int> last(static_cast<size_t>(axis.out_count));  // for each output pixel, one past its last source pixel
  first.resize(last.size());
  low = axis.high;
  high = axis.low;
  for (size_t i = 0; i < first.size(); ++i) {
    // Rounds both ends as Pillow does.
    first[i] = std::clamp(static_cast<int>(std::floor(centre_of(i) - support + 0.5)), axis.low, axis.high - 1);
    last[i] = std::clamp(static_cast<int>(std::floor(centre_of(i) + support + 0.5)), first[i] + 1, axis.high);
    low = std::min(low, first[i]);
    high = std::max(high, last[i]);
    width = std::max(width, last[i] - first[i]);
  }
  width += width % 2;

  weights.resize(first.size() * static_cast<size_t>(width));
  std::vector<double> exact(static_cast<size_t>(width));
  for (size_t i = 0; i < first.size(); ++i) {
    const auto count = static_cast<size_t>(last[i] - first[i]);
    double sum = 0;
    for (size_t k = 0; k < count; ++k) {
      const double distance = first[i] + static_cast<double>(k) - centre_of(i) + 0.5;
      exact[k] = std::max(1 - std::abs(distance / support), 0.0);
      sum += exact[k];
    }
    if (sum == 0) exact[0] = sum = 1;
    // Rounds the running sums instead of the single weights. So the weights sum to kOne, and rounding errors do not
    // accumulate.
    double so_far = 0;
    int rounded = 0;
    for (size_t k = 0; k < count; ++k) {
      so_far += exact[k];
      const int next = static_cast<int>(std::lround(so_far / sum * kOne));
      weights[i * static_cast<size_t>(width) + k] = static_cast<int16_t>(next - rounded);
      rounded = next;
    }
  }
}

void resize(const Pixels& pixels, const Taps& x, const Taps& y, uint8_t* out, std::vector<uint16_t>& rows) {
  const size_t row_bytes = 3 * static_cast<size_t>(pixels.region.width);
  const size_t count = 3 * static_cast<size_t>(x.high - x.low);
  // Padding weights of zero are multiplied with values after the end of the row, so the buffer is longer than a row.
  rows.resize(std::max(rows.size(), count + 3 * static_cast<size_t>(x.width) + 4));
  for (size_t i = 0; i < y.first.size(); ++i) {
    const size_t top = static_cast<size_t>(y.first[i] - pixels.region.top);
    const size_t left = static_cast<size_t>(x.low - pixels.region.left);
    sum_rows(pixels.rgb.data() + top * row_bytes + 3 * left, row_bytes,
             std::span(y.weights).subspan(i * static_cast<size_t>(y.width), static_cast<size_t>(y.width)), count,
             rows.data());
    auto* const to = out + 3 * x.first.size() * i;
    switch (x.width) {  // the compiler unrolls the loop over a known number of neighbours
      case 2: sum_columns<2>(rows.data(), x, to); break;
      case 4: sum_columns<4>(rows.data(), x, to); break;
      case 6: sum_columns<6>(rows.data(), x, to); break;
      default: sum_columns<0>(rows.data(), x, to);
    }
  }
}

}  // namespace yoke::train::detail
