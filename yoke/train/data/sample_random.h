// yoke/train/data/sample_random.h -- random numbers for one sample of one epoch, for augmentation.
#pragma once

#include <cstdint>
#include <limits>

namespace yoke::train {

/// A generator whose numbers are a function of seed, epoch and position. So they do not depend on the number of workers
/// and ranks or on resuming. Construction costs nothing. The class satisfies std::uniform_random_bit_generator. Unlike
/// std's distributions, its member functions give the same values with every standard library.
/// Source  SplitMix64: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
class SampleRandom {
 public:
  using result_type = uint64_t;

  SampleRandom(uint64_t seed, int64_t epoch, int64_t position)
      : state_(mix(mix(mix(seed) ^ static_cast<uint64_t>(epoch)) ^ static_cast<uint64_t>(position))) {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()() { return mix(state_ += kStep); }

  /// A number in [low, high).
  double uniform(double low = 0, double high = 1) {
    return low + (high - low) * (static_cast<double>((*this)() >> 11) * 0x1p-53);
  }
  /// An integer in [0, count). REQUIRES: count > 0. If count is far below 2^64, all integers are nearly equally likely
  /// (to within count / 2^64).
  int64_t below(int64_t count) { return static_cast<int64_t>((*this)() % static_cast<uint64_t>(count)); }
  /// Returns true with probability p.
  bool chance(double p) { return uniform() < p; }

  /// The mixing function: a bijection of 64 bits.
  static constexpr uint64_t mix(uint64_t z) {
    z += kStep;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

 private:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;
  uint64_t state_;
};

}  // namespace yoke::train
