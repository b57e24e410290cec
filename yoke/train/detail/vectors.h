// yoke/train/detail/vectors.h -- eight numbers at once, by the vectors that GCC and Clang have for all processors.
#pragma once

#include <cstdint>
#include <cstring>

#pragma GCC diagnostic ignored "-Wpsabi"  // all functions with vectors are inlined, so no call passes one

namespace yoke::train::detail {

#define YOKE_INLINE inline __attribute__((always_inline))

constexpr int64_t kNumbers = 8;
using Floats = float __attribute__((vector_size(32)));
using Ints = int32_t __attribute__((vector_size(32)));  // also masks: -1 is true
using Words = uint32_t __attribute__((vector_size(32)));
using Halves = uint16_t __attribute__((vector_size(16)));
using FourLongs = int64_t __attribute__((vector_size(32)));

template <class To, class From>
YOKE_INLINE To bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <class Vector, class T>
YOKE_INLINE Vector vector_at(const T* from) {
  Vector vector;
  static_assert(sizeof(Vector) % sizeof(T) == 0);
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

YOKE_INLINE Floats load(const float* from) { return vector_at<Floats>(from); }
YOKE_INLINE Ints load(const int32_t* from) { return vector_at<Ints>(from); }
/// REQUIRES: the numbers are within 32 bits.
YOKE_INLINE Ints load(const int64_t* from) {
  // The lower halves of the numbers.
  const auto low = vector_at<Ints>(from), high = vector_at<Ints>(from + 4);
  return __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14);
}
YOKE_INLINE Floats load(const uint16_t* from) {
  return bits_of<Floats>(__builtin_convertvector(vector_at<Halves>(from), Words) << 16);
}

YOKE_INLINE void store(Floats numbers, float* to) { std::memcpy(to, &numbers, sizeof numbers); }
YOKE_INLINE void store(Ints numbers, int32_t* to) { std::memcpy(to, &numbers, sizeof numbers); }
// The compiler converts vectors that a processor has; eight int64_t at once would go through memory.
YOKE_INLINE void store(Ints numbers, int64_t* to) {
  const auto low = __builtin_convertvector(__builtin_shufflevector(numbers, numbers, 0, 1, 2, 3), FourLongs);
  const auto high = __builtin_convertvector(__builtin_shufflevector(numbers, numbers, 4, 5, 6, 7), FourLongs);
  std::memcpy(to, &low, sizeof low);
  std::memcpy(to + 4, &high, sizeof high);
}
/// REQUIRES: the numbers are bfloat16.
YOKE_INLINE void store(Floats numbers, uint16_t* to) {
  const auto halves = __builtin_convertvector(bits_of<Words>(numbers) >> 16, Halves);
  std::memcpy(to, &halves, sizeof halves);
}

YOKE_INLINE Floats choose(Ints mask, Floats a, Floats b) { return mask ? a : b; }
YOKE_INLINE Ints choose(Ints mask, Ints a, Ints b) { return mask ? a : b; }
YOKE_INLINE Ints all(int64_t number) {
  const auto one = static_cast<int32_t>(number);
  return Ints{one, one, one, one, one, one, one, one};
}

YOKE_INLINE bool has_any(Ints mask) {
  int32_t found = 0;
  for (int64_t i = 0; i < kNumbers; ++i) found |= mask[i];
  return found != 0;
}

}  // namespace yoke::train::detail
