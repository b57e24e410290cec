// Loops for images whose channels are next to each other, which handle eight channels at once. The last eight overlap
// those before if the number of channels is no multiple of eight; what overlaps is computed twice, with the same
// result.
#include <algorithm>
#include <limits>

#include "yoke/train/detail/for_avx2.h"
#include "yoke/train/detail/max_pool.h"
#include "yoke/train/detail/vectors.h"

namespace yoke::train::detail {
namespace {

static_assert(kMinChannels >= kNumbers);

/// Calls use(channel) with the first of each eight channels.
template <class Use>
YOKE_INLINE void for_eight_channels(int64_t channels, const Use& use) {
  int64_t channel = 0;
  for (; channel + kNumbers <= channels; channel += kNumbers) use(channel);
  if (channel < channels) use(channels - kNumbers);
}

/// The places of a window in the image, and the same as vectors: the compiler makes a vector of one number slowly, so
/// that is done once for all channels.
struct Window {
  YOKE_INLINE Window(const MaxPool& pool, MaxPool::Range rows_in, MaxPool::Range columns_in)
      : rows(rows_in), columns(columns_in), first(rows.begin * pool.width + columns.begin), first_vector(all(first)) {}
  MaxPool::Range rows, columns;
  int64_t first;
  Ints first_vector;
};

/// The steps from one place to the next and to the next row.
struct Steps {
  explicit Steps(const MaxPool& pool) : row(pool.width), row_vector(all(pool.width)) {}
  int64_t row;
  Ints one = all(1), row_vector;
};

/// Calls use(place, the same as a vector) with each place of the window. `is_square`: the window has two by two places;
/// if the compiler knows it, it makes no loops.
template <class Use>
YOKE_INLINE void for_window(const Window& window, const Steps& steps, bool is_square, const Use& use) {
  if (is_square) {
    use(window.first, window.first_vector);
    use(window.first + 1, window.first_vector + steps.one);
    use(window.first + steps.row, window.first_vector + steps.row_vector);
    use(window.first + steps.row + 1, window.first_vector + steps.row_vector + steps.one);
    return;
  }
  auto first = window.first;
  auto first_vector = window.first_vector;
  const int64_t size = window.columns.end - window.columns.begin;
  for (int64_t row = window.rows.begin; row < window.rows.end; ++row) {
    auto vector = first_vector;
    for (int64_t place = first; place < first + size; ++place) {
      use(place, vector);
      vector += steps.one;
    }
    first += steps.row;
    first_vector += steps.row_vector;
  }
}

template <class T>
YOKE_INLINE void pool_rows(const MaxPool& pool, const T* x, int64_t channels, int64_t begin, int64_t end, T* y,
                           int64_t* index, bool is_square) {
  const Steps steps(pool);
  for (int64_t out = begin; out < end; ++out) {
    const T* const image = x + out / pool.out_height * pool.height * pool.width * channels;
    const auto rows = pool.rows_of(out % pool.out_height);
    for (int64_t out_column = 0; out_column < pool.out_width; ++out_column) {
      const Window window(pool, rows, pool.columns_of(out_column));
      const int64_t result = (out * pool.out_width + out_column) * channels;
      const auto pool_channels = [&](int64_t channel) __attribute__((always_inline)) {
        auto best = Floats{} - std::numeric_limits<float>::infinity();
        auto at = window.first_vector;
        const auto compare = [&](int64_t place, const Ints& place_vector) __attribute__((always_inline)) {
          const auto number = load(image + place * channels + channel);
          const Ints is_chosen = (number > best) | (number != number);  // NaN is the maximum; of two, the last
          best = choose(is_chosen, number, best);
          at = choose(is_chosen, place_vector, at);
        };
        for_window(window, steps, is_square, compare);
        store(best, y + result + channel);
        store(at, index + result + channel);
      };
      for_eight_channels(channels, pool_channels);
    }
  }
}

template <class T>
YOKE_INLINE void pool_all_rows(const MaxPool& pool, const T* x, int64_t channels, int64_t begin, int64_t end, T* y,
                               int64_t* index) {
  if (pool.is_of_squares()) {
    pool_rows(pool, x, channels, begin, end, y, index, true);
  } else {
    pool_rows(pool, x, channels, begin, end, y, index, false);
  }
}

template <class T>
YOKE_INLINE bool spread(const MaxPool& pool, const T* gradient, const int64_t* index, int64_t channels, T* image,
                        bool is_square) {
  const Steps steps(pool);
  Ints are_found = all(-1);
  for (int64_t out_row = 0; out_row < pool.out_height; ++out_row) {
    const auto rows = pool.rows_of(out_row);
    for (int64_t out_column = 0; out_column < pool.out_width; ++out_column) {
      const Window window(pool, rows, pool.columns_of(out_column));
      const int64_t result = (out_row * pool.out_width + out_column) * channels;
      const auto spread_channels = [&](int64_t channel) __attribute__((always_inline)) {
        const auto numbers = load(gradient + result + channel) + 0.0F;  // libtorch adds to 0, so that -0 becomes 0
        const auto at = load(index + result + channel);
        Ints is_found = {};
        const auto write = [&](int64_t place, const Ints& place_vector) __attribute__((always_inline)) {
          const Ints is_here = at == place_vector;
          is_found |= is_here;
          store(choose(is_here, numbers, Floats{}), image + place * channels + channel);
        };
        for_window(window, steps, is_square, write);
        are_found &= is_found;
      };
      for_eight_channels(channels, spread_channels);
    }
  }
  return !has_any(~are_found);
}

template <class T>
YOKE_INLINE bool spread_all(const MaxPool& pool, const T* gradient, const int64_t* index, int64_t channels, T* image) {
  const bool is_covered = pool.window_height * pool.out_height == pool.height &&
                          pool.window_width * pool.out_width == pool.width &&
                          pool.stride_height == pool.window_height && pool.stride_width == pool.window_width;
  if (!is_covered || pool.top != 0 || pool.left != 0) std::fill_n(image, pool.height * pool.width * channels, T{});
  return pool.is_of_squares() ? spread(pool, gradient, index, channels, image, true)
                              : spread(pool, gradient, index, channels, image, false);
}

}  // namespace

// A function that is compiled for several processors must not be a template.

YOKE_FOR_AVX2_TOO void pool_channels_last(const MaxPool& pool, const float* x, int64_t channels, int64_t begin,
                                          int64_t end, float* y, int64_t* index) {
  pool_all_rows(pool, x, channels, begin, end, y, index);
}

YOKE_FOR_AVX2_TOO void pool_channels_last(const MaxPool& pool, const uint16_t* x, int64_t channels, int64_t begin,
                                          int64_t end, uint16_t* y, int64_t* index) {
  pool_all_rows(pool, x, channels, begin, end, y, index);
}

YOKE_FOR_AVX2_TOO bool spread_channels_last(const MaxPool& pool, const float* gradient, const int64_t* index,
                                            int64_t channels, float* image) {
  return spread_all(pool, gradient, index, channels, image);
}

YOKE_FOR_AVX2_TOO bool spread_channels_last(const MaxPool& pool, const uint16_t* gradient, const int64_t* index,
                                            int64_t channels, uint16_t* image) {
  return spread_all(pool, gradient, index, channels, image);
}

}  // namespace yoke::train::detail
