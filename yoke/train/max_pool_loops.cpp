// Loops for planes (NCHW), which handle eight columns at once.
//
// Rows do not end with a vector: loops read and write up to 15 numbers past the end of a row. That is the next row,
// which is written later. The last planes are handled in a memory of their own.
#include <algorithm>
#include <limits>
#include <vector>

#include "yoke/train/detail/for_avx2.h"
#include "yoke/train/detail/max_pool.h"
#include "yoke/train/detail/vectors.h"

namespace yoke::train::detail {
namespace {

constexpr int64_t kPastEnd = 2 * kNumbers;
constexpr Ints kEven = {0, 2, 4, 6, 8, 10, 12, 14};

template <class Vector>
YOKE_INLINE Vector even(const Vector& a, const Vector& b) {
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
}
template <class Vector>
YOKE_INLINE Vector odd(const Vector& a, const Vector& b) {
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
}

int64_t rounded_up(int64_t number) { return (number + kNumbers - 1) / kNumbers * kNumbers; }

/// How many planes must not be read and written past their ends.
int64_t num_last(const MaxPool& pool) {
  return (kPastEnd - 1) / std::min(pool.height * pool.width, pool.out_height * pool.out_width) + 1;
}

template <class T>
YOKE_INLINE bool pool_squares(const MaxPool& pool, const T* x, T* y, int64_t* index) {
  Ints has_nan = {};
  for (int64_t row = 0; row < pool.out_height; ++row, y += pool.out_width, index += pool.out_width) {
    for (int64_t column = 0; column < pool.out_width; column += kNumbers) {
      const int64_t first = 2 * row * pool.width + 2 * column;
      const auto *upper = x + first, *lower = upper + pool.width;
      const auto a = load(upper), b = load(upper + kNumbers), c = load(lower), d = load(lower + kNumbers);
      auto best = even(a, b);
      const auto upper_right = odd(a, b), lower_left = even(c, d), lower_right = odd(c, d);
      const auto sum = (best + upper_right) + (lower_left + lower_right);
      has_nan |= sum != sum;
      const auto upper_left_at = kEven + static_cast<int32_t>(first);
      auto at = upper_left_at;
      const auto compare = [&](const Floats& number, int64_t offset) __attribute__((always_inline)) {
        const Ints is_larger = number > best;
        best = choose(is_larger, number, best);
        at = choose(is_larger, upper_left_at + static_cast<int32_t>(offset), at);
      };
      compare(upper_right, 1);
      compare(lower_left, pool.width);
      compare(lower_right, pool.width + 1);
      store(best, y + column);
      store(at, index + column);
    }
  }
  return !has_any(has_nan);
}

/// Begins after all rows.
constexpr int32_t kNoRow = 1 << 30;

/// The maximum of each column of a window's rows, and where its row begins; beside them what no window chooses.
struct Columns {
  explicit Columns(const MaxPool& pool) {
    const int64_t read = (rounded_up(pool.out_width) - 1) * pool.stride_width + pool.window_width + kPastEnd;
    const int64_t written = pool.left + rounded_up(pool.width) + kNumbers;
    best.resize(std::max(read, written), -std::numeric_limits<float>::infinity());
    begin.resize(best.size(), kNoRow);
  }
  std::vector<float> best;
  std::vector<int32_t> begin;
};

/// Eight numbers, each of them `stride` after the one before.
template <class T>
YOKE_INLINE auto with_stride(const T* from, int64_t stride) {
  if (stride == 1) return load(from);
  if (stride == 2) return even(load(from), load(from + kNumbers));
  T numbers[kNumbers];
  for (int64_t i = 0; i < kNumbers; ++i) numbers[i] = from[i * stride];
  return load(numbers);
}

/// The same for all windows.
template <class T>
YOKE_INLINE bool pool_plane(const MaxPool& pool, const T* x, T* y, int64_t* index, Columns& columns) {
  Ints has_nan = {};
  float* const bests = columns.best.data();
  int32_t* const begins = columns.begin.data();
  for (int64_t out_row = 0; out_row < pool.out_height; ++out_row, y += pool.out_width, index += pool.out_width) {
    const auto rows = pool.rows_of(out_row);
    for (int64_t column = 0; column < pool.width; column += kNumbers) {
      auto best = load(x + rows.begin * pool.width + column);
      has_nan |= best != best;
      auto begin = all(rows.begin * pool.width);
      for (int64_t row = rows.begin + 1; row < rows.end; ++row) {
        const auto number = load(x + row * pool.width + column);
        has_nan |= number != number;
        const Ints is_larger = number > best;
        best = choose(is_larger, number, best);
        begin = choose(is_larger, all(row * pool.width), begin);
      }
      store(best, bests + pool.left + column);
      store(begin, begins + pool.left + column);
    }
    store(Floats{} - std::numeric_limits<float>::infinity(), bests + pool.left + pool.width);
    store(all(kNoRow), begins + pool.left + pool.width);

    for (int64_t out_column = 0; out_column < pool.out_width; out_column += kNumbers) {
      const int64_t first = out_column * pool.stride_width;
      const Ints first_column =
          Ints{0, 1, 2, 3, 4, 5, 6, 7} * static_cast<int32_t>(pool.stride_width) + all(first - pool.left);
      auto best = with_stride(bests + first, pool.stride_width);
      auto begin = with_stride(begins + first, pool.stride_width);
      auto chosen = first_column;
      for (int64_t i = 1; i < pool.window_width; ++i) {
        const auto number = with_stride(bests + first + i, pool.stride_width);
        const auto its_begin = with_stride(begins + first + i, pool.stride_width);
        // Of equal numbers, the one in the upper row is the first.
        const Ints is_better = (number > best) | ((number == best) & (its_begin < begin));
        best = choose(is_better, number, best);
        begin = choose(is_better, its_begin, begin);
        chosen = choose(is_better, first_column + static_cast<int32_t>(i), chosen);
      }
      store(best, y + out_column);
      store(begin + chosen, index + out_column);
    }
  }
  return !has_any(has_nan);
}

template <class T>
YOKE_INLINE bool pool_all_planes(const MaxPool& pool, const T* x, int64_t num_planes, T* y, int64_t* index) {
  const int64_t size = pool.height * pool.width, out_size = pool.out_height * pool.out_width;
  Columns columns(pool);
  std::vector<T> last_x(size + kPastEnd), last_y(out_size + kPastEnd);
  std::vector<int64_t> last_index(out_size + kPastEnd);
  bool has_nan = false;
  for (int64_t plane = 0; plane < num_planes; ++plane, x += size, y += out_size, index += out_size) {
    const bool is_last = plane >= num_planes - num_last(pool);
    if (is_last) std::copy_n(x, size, last_x.begin());
    const T* from = is_last ? last_x.data() : x;
    T* to = is_last ? last_y.data() : y;
    int64_t* its_index = is_last ? last_index.data() : index;
    has_nan |= !(pool.is_of_squares() ? pool_squares(pool, from, to, its_index)
                                      : pool_plane(pool, from, to, its_index, columns));
    if (is_last) {
      std::copy_n(last_y.begin(), out_size, y);
      std::copy_n(last_index.begin(), out_size, index);
    }
  }
  return !has_nan;
}

}  // namespace

// A function that is compiled for several processors must not be a template.

YOKE_FOR_AVX2_TOO bool pool_planes(const MaxPool& pool, const float* x, int64_t num_planes, float* y, int64_t* index) {
  return pool_all_planes(pool, x, num_planes, y, index);
}

YOKE_FOR_AVX2_TOO bool pool_planes(const MaxPool& pool, const uint16_t* x, int64_t num_planes, uint16_t* y,
                                   int64_t* index) {
  return pool_all_planes(pool, x, num_planes, y, index);
}

}  // namespace yoke::train::detail
