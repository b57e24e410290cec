// yoke/train/data/detail/permutation.h -- a random permutation whose elements are computed one by one. Internal.
#pragma once

#include <cstdint>

#include "yoke/train/data/sample_random.h"

namespace yoke::train::detail {

/// A permutation of [0, n) that needs no memory: a Feistel network over the smallest even number of bits that can
/// represent n. The network is applied repeatedly until its output is below n (at most four times on average).
/// Source  Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002: the generalised Feistel cipher and
///         cycle walking.
class Permutation {
 public:
  /// REQUIRES: n is in [0, 2^62].
  Permutation(int64_t n, uint64_t seed, int64_t epoch)
      : n_(static_cast<uint64_t>(n)), key_(SampleRandom::mix(SampleRandom::mix(seed) ^ static_cast<uint64_t>(epoch))) {
    while ((uint64_t{1} << (2 * half_bits_)) < n_) ++half_bits_;
  }

  /// REQUIRES: i is in [0, n).
  int64_t operator()(int64_t i) const {
    auto value = static_cast<uint64_t>(i);
    do value = once(value);
    while (value >= n_);
    return static_cast<int64_t>(value);
  }

 private:
  static constexpr uint64_t kRounds = 6;

  uint64_t once(uint64_t value) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t left = value >> half_bits_, right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (SampleRandom::mix(key_ + (round << 56) + right) & mask);
      left = right;
      right = next;
    }
    return left << half_bits_ | right;
  }

  uint64_t n_;
  uint64_t key_;
  int half_bits_ = 1;
};

}  // namespace yoke::train::detail
