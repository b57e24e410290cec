#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/MT19937RNGEngine.h>
#include <ATen/ops/bernoulli_cpu_dispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <mutex>

#include "yoke/train/detail/for_avx2.h"
#include "yoke/train/detail/own_kernels.h"

namespace yoke::train::detail {
namespace {

constexpr int64_t kWords = at::MERSENNE_STATE_N;
constexpr int kBitsOfDraw = 53;  // of a double between 0 and 1

/// The next 624 words of the generator.
YOKE_FOR_AVX2_TOO void renew(uint32_t* words) {
  constexpr int64_t kShift = at::MERSENNE_STATE_M, kBack = kWords - kShift;
  const auto twisted = [](uint32_t upper, uint32_t lower) {
    return (((upper & at::UMASK) | (lower & at::LMASK)) >> 1) ^ ((lower & 1) != 0 ? at::MATRIX_A : 0);
  };
  for (int64_t i = 0; i < kBack; ++i) words[i] = words[i + kShift] ^ twisted(words[i], words[i + 1]);
  for (int64_t i = kBack; i < kWords - 1; ++i) words[i] = words[i - kBack] ^ twisted(words[i], words[i + 1]);
  words[kWords - 1] = words[kShift - 1] ^ twisted(words[kWords - 1], words[0]);
}

YOKE_FOR_AVX2_TOO void temper(const uint32_t* words, int64_t count, uint32_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    auto word = words[i];
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c5680;
    word ^= (word << 15) & 0xefc60000;
    to[i] = word ^ (word >> 18);
  }
}

/// Two words are a draw; the first one has its upper bits.
template <class T>
inline __attribute__((always_inline)) void write_ones(const uint32_t* words, int64_t count, int64_t limit, T one,
                                                      T* to) {
  constexpr int64_t kUpperBits = (int64_t{1} << (kBitsOfDraw - 32)) - 1;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t draw = ((words[2 * i] & kUpperBits) << 32) | words[2 * i + 1];
    to[i] = draw < limit ? one : T{};
  }
}

YOKE_FOR_AVX2_TOO void choose_ones(const uint32_t* words, int64_t count, int64_t limit, uint32_t one, uint32_t* to) {
  write_ones(words, count, limit, one, to);
}
YOKE_FOR_AVX2_TOO void choose_ones(const uint32_t* words, int64_t count, int64_t limit, uint16_t one, uint16_t* to) {
  write_ones(words, count, limit, one, to);
}
YOKE_FOR_AVX2_TOO void choose_ones(const uint32_t* words, int64_t count, int64_t limit, uint8_t one, uint8_t* to) {
  write_ones(words, count, limit, one, to);
}

/// The generator's draws, as its operator() gives them one by one.
void draw(at::mt19937_data_pod& state, int64_t count, uint32_t* to) {
  while (count > 0) {
    if (state.left_ == 1) {
      renew(state.state_.data());
      state.left_ = kWords + 1;
      state.next_ = 0;
    }
    const auto part = std::min<int64_t>(count, state.left_ - 1);
    temper(state.state_.data() + state.next_, part, to);
    state.next_ += static_cast<uint32_t>(part);
    state.left_ -= static_cast<int>(part);
    to += part;
    count -= part;
  }
}

template <class T>
void fill(at::mt19937_data_pod& state, int64_t count, double p, T one, T* to) {
  const auto limit = static_cast<int64_t>(std::ceil(std::ldexp(p, kBitsOfDraw)));
  constexpr int64_t kPart = 512;
  std::array<uint32_t, 2 * kPart> words;
  for (int64_t begin = 0; begin < count; begin += kPart) {
    const auto part = std::min(kPart, count - begin);
    draw(state, 2 * part, words.data());
    choose_ones(words.data(), part, limit, one, to + begin);
  }
}

/// Fills a dense tensor in the order of its memory. Returns false if it has no loop for its dtype.
bool fill(const at::Tensor& tensor, double p, const at::Generator& generator) {
  auto* const its = at::check_generator<at::CPUGeneratorImpl>(generator);
  const std::scoped_lock lock(its->mutex_);
  auto engine = its->engine();
  auto state = engine.data();
  void* const to = tensor.mutable_data_ptr();
  const auto count = tensor.numel();
  switch (tensor.scalar_type()) {
    case at::kFloat: fill<uint32_t>(state, count, p, 0x3F800000, static_cast<uint32_t*>(to)); break;
    case at::kBFloat16: fill<uint16_t>(state, count, p, 0x3F80, static_cast<uint16_t*>(to)); break;
    case at::kHalf: fill<uint16_t>(state, count, p, 0x3C00, static_cast<uint16_t*>(to)); break;
    case at::kBool: fill<uint8_t>(state, count, p, 1, static_cast<uint8_t*>(to)); break;
    default: return false;
  }
  engine.set_data(state);
  its->set_engine(engine);
  return true;
}

/// Whether libtorch draws in this way on this machine.
bool draws_alike() {
  constexpr int64_t kCount = 1000;
  constexpr double kProbability = 0.3;
  const auto ours = at::detail::createCPUGenerator(1), theirs = at::detail::createCPUGenerator(1);
  for (const auto& generator : {ours, theirs}) at::check_generator<at::CPUGeneratorImpl>(generator)->random();
  const auto our_numbers = at::empty({kCount}, at::kFloat);
  auto their_numbers = at::empty({kCount}, at::kFloat);
  fill(our_numbers, kProbability, ours);
  at::cpu::bernoulli_(their_numbers, kProbability, theirs);
  const auto our_state = ours.get_state(), their_state = theirs.get_state();
  const auto same = [](const at::Tensor& a, const at::Tensor& b) {
    return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
  };
  return same(our_numbers, their_numbers) && same(our_state, their_state);
}

}  // namespace

at::Tensor& bernoulli_(at::Tensor& self, double p, std::optional<at::Generator> generator) {
  constexpr int64_t kMinCount = 64;  // below, copying the generator takes longer
  if (p >= 0 && p <= 1 && self.is_cpu() && self.layout() == at::kStrided && self.numel() >= kMinCount &&
      self.is_non_overlapping_and_dense()) {
    static const bool are_alike = draws_alike();
    const bool has_own = generator && generator->defined();
    if (are_alike && fill(self, p, has_own ? *generator : at::detail::getDefaultCPUGenerator())) return self;
  }
  return at::cpu::bernoulli_(self, p, std::move(generator));
}

}  // namespace yoke::train::detail
