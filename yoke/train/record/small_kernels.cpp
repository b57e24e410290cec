#include "yoke/train/record/detail/small_kernels.h"

#include <ATen/Version.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/_log_softmax_backward_data_cpu_dispatch.h>
#include <ATen/ops/_log_softmax_cpu_dispatch.h>
#include <ATen/ops/clamp_min_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nll_loss_forward_cpu_dispatch.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>

#include "yoke/train/detail/for_avx2.h"

namespace yoke::train::detail {
namespace {

// ---- Comparing with libtorch ------------------------------------------------------------------------------

/// Numbers of both signs and of several magnitudes, always the same ones. The caller's generators stay as they are.
at::Tensor some_numbers(at::IntArrayRef sizes, uint32_t seed) {
  const auto tensor = at::empty(sizes, at::kFloat);
  auto* const to = mutable_values(tensor);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    seed = seed * 1664525 + 1013904223;
    to[i] = static_cast<float>(static_cast<int32_t>(seed)) * (i % 7 == 0 ? 0x1p-27F : 0x1p-31F);
  }
  return tensor;
}

bool have_same_bits(const at::Tensor& a, const at::Tensor& b) {
  return std::memcmp(values(a), values(b), a.nbytes()) == 0;
}

/// Whether `is_alike` is true of so many examples that 32 or more results were compared: one sum can be alike by
/// chance.
template <class IsAlike>
bool for_examples(int64_t num_results, const IsAlike& is_alike) {
  for (uint32_t seed = 1; (seed - 1) * num_results < 32; ++seed) {
    if (!is_alike(seed)) return false;
  }
  return true;
}

// ---- Loops over all elements ------------------------------------------------------------------------------

/// By the instruction that libtorch uses, which decides what becomes of -0, of NaN, and of denormals where they are
/// flushed.
void relu(const float* x, int64_t size, float* to) {
  int64_t i = 0;
#ifdef __x86_64__
  const auto zero = _mm_setzero_ps();
  for (; i + 4 <= size; i += 4) _mm_storeu_ps(to + i, _mm_max_ps(zero, _mm_loadu_ps(x + i)));
  for (; i < size; ++i) to[i] = _mm_cvtss_f32(_mm_max_ss(zero, _mm_load_ss(x + i)));
#endif
  for (; i < size; ++i) to[i] = 0.0F > x[i] ? 0.0F : x[i];
}

YOKE_FOR_AVX2_TOO void threshold_backward(const float* gradient, const float* x, float threshold, int64_t size,
                                          float* to) {
  for (int64_t i = 0; i < size; ++i) to[i] = x[i] <= threshold ? 0.0F : gradient[i];
}

// ---- Sums of rows -----------------------------------------------------------------------------------------

// libtorch's order of additions (ATen/native/cpu/SumKernel.cpp): blocks of 16 rows, whose sums are added. Columns that
// do not fill four of its vectors are added in four parts, each of every fourth row.
constexpr int64_t kRowsOfBlock = 16;
constexpr int64_t kMaxRows = kRowsOfBlock * kRowsOfBlock;  // with more, it adds blocks of blocks

/// Adds so many rows of `width` <= kMaxWidth columns, of which each is `stride` after the one before.
constexpr int64_t kMaxWidth = 64;
YOKE_FOR_AVX2_TOO void add_rows(const float* from, int64_t stride, int64_t num_rows, int64_t width, float* sums) {
  float blocks[kMaxWidth] = {};
  std::fill_n(sums, width, 0.0F);
  for (int64_t row = 0; row < num_rows; ++row, from += stride) {
    for (int64_t i = 0; i < width; ++i) sums[i] += from[i];
    if (row % kRowsOfBlock != kRowsOfBlock - 1) continue;
    for (int64_t i = 0; i < width; ++i) blocks[i] += sums[i];
    std::fill_n(sums, width, 0.0F);
  }
  for (int64_t i = 0; i < width; ++i) sums[i] += blocks[i];
}

/// `group`: the columns of four of libtorch's vectors.
void sum_of_rows(const float* from, int64_t num_rows, int64_t num_columns, int64_t group, float* to) {
  int64_t first = 0;
  for (; first + group <= num_columns; first += group) add_rows(from + first, num_columns, num_rows, group, to + first);
  for (int64_t width = 0; first < num_columns; first += width) {
    width = std::min(num_columns - first, kMaxWidth);
    float parts[4][kMaxWidth];
    for (int64_t part = 0; part < 4; ++part) {
      add_rows(from + first + part * num_columns, 4 * num_columns, num_rows / 4, width, parts[part]);
    }
    for (int64_t row = num_rows / 4 * 4; row < num_rows; ++row) {
      for (int64_t i = 0; i < width; ++i) parts[0][i] += from[row * num_columns + first + i];
    }
    for (int64_t i = 0; i < width; ++i) to[first + i] = ((parts[0][i] + parts[1][i]) + parts[2][i]) + parts[3][i];
  }
}

// ---- log_softmax ------------------------------------------------------------------------------------------

#ifdef __x86_64__

// The functions of SLEEF that libtorch has in it and uses where its kernels are those for AVX-512.
extern "C" __attribute__((weak, target("avx512f"))) __m512 Sleef_expf16_u10(__m512);
extern "C" __attribute__((weak, target("avx512f"))) __m512 Sleef_logf16_u10(__m512);

#define YOKE_AVX512 __attribute__((target("avx512f")))

constexpr int64_t kLanes = 16;

bool has_avx512() {
  static const bool has_it =
      at::get_cpu_capability() == "AVX512" && Sleef_expf16_u10 != nullptr && Sleef_logf16_u10 != nullptr;
  return has_it;
}

/// In the order in which libtorch adds what does not fill a vector.
float sum_of(const float* from, int64_t count) {
  float sum = from[0];
  for (int64_t i = 1; i < count; ++i) sum += from[i];
  return sum;
}

/// A row is shorter than a vector, as classes often are: then libtorch handles single numbers.
YOKE_AVX512 void log_softmax(const float* from, int64_t num_rows, int64_t num_columns, float* to) {
  const auto mask = static_cast<__mmask16>((1U << num_columns) - 1);
  for (int64_t first = 0; first < num_rows; first += kLanes) {
    const int64_t end = std::min(first + kLanes, num_rows);
    float maxima[kLanes], sums[kLanes] = {};
    for (int64_t row = first; row < end; ++row) {
      const __m512 x = _mm512_maskz_loadu_ps(mask, from + row * num_columns);
      const bool has_nan = _mm512_mask_cmp_ps_mask(mask, x, x, _CMP_UNORD_Q) != 0;
      const float maximum = has_nan ? std::numeric_limits<float>::quiet_NaN() : _mm512_mask_reduce_max_ps(mask, x);
      float powers[kLanes];
      _mm512_storeu_ps(powers, Sleef_expf16_u10(_mm512_sub_ps(x, _mm512_set1_ps(maximum))));
      maxima[row - first] = maximum;
      sums[row - first] = sum_of(powers, num_columns);
    }
    _mm512_storeu_ps(sums, Sleef_logf16_u10(_mm512_loadu_ps(sums)));
    for (int64_t row = first; row < end; ++row) {
      const __m512 x = _mm512_maskz_loadu_ps(mask, from + row * num_columns);
      const __m512 less = _mm512_sub_ps(x, _mm512_set1_ps(maxima[row - first]));
      _mm512_mask_storeu_ps(to + row * num_columns, mask, _mm512_sub_ps(less, _mm512_set1_ps(sums[row - first])));
    }
  }
}

YOKE_AVX512 void log_softmax_backward(const float* gradient, const float* y, int64_t num_rows, int64_t num_columns,
                                      float* to) {
  const auto mask = static_cast<__mmask16>((1U << num_columns) - 1);
  for (int64_t row = 0; row < num_rows; ++row, gradient += num_columns, y += num_columns, to += num_columns) {
    const __m512 sum = _mm512_set1_ps(sum_of(gradient, num_columns));
    const __m512 power = Sleef_expf16_u10(_mm512_maskz_loadu_ps(mask, y));
    _mm512_mask_storeu_ps(to, mask, _mm512_fnmadd_ps(power, sum, _mm512_maskz_loadu_ps(mask, gradient)));
  }
}

#undef YOKE_AVX512

bool is_for_short_rows(const at::Tensor& x) {
  return has_avx512() && x.dim() == 2 && x.size(1) > 0 && x.size(1) < kLanes;
}

#endif

// ---- The negative log likelihood --------------------------------------------------------------------------

/// Returns the mean, in libtorch's order of additions (ATen/native/LossNLL.cpp): sums of 16 rows, sums of 16 of these,
/// and so on. Null if a target is no class. Sets the number of rows that count.
std::optional<float> nll_mean(const float* row, const int64_t* target, int64_t num_rows, int64_t num_columns,
                              int64_t ignored, float& num_counted) {
  constexpr int64_t kLevels = 8, kBitsOfLevel = 4;
  float sums[kLevels] = {};
  int64_t num_ignored = 0;
  for (int64_t i = 0; i < num_rows; ++i, row += num_columns) {
    if (target[i] == ignored) {
      ++num_ignored;
      continue;
    }
    if (target[i] < 0 || target[i] >= num_columns) return std::nullopt;
    sums[0] -= row[target[i]];
    for (int64_t level = 0; level + 1 < kLevels; ++level) {
      if ((i >> (level * kBitsOfLevel) & ((1 << kBitsOfLevel) - 1)) != 0) break;
      sums[level + 1] += sums[level];
      sums[level] = 0;
    }
  }
  num_counted = static_cast<float>(num_rows - num_ignored);
  return std::accumulate(std::begin(sums), std::end(sums), 0.0F) / num_counted;
}

const int64_t* classes(const at::Tensor& target) {
  return static_cast<const int64_t*>(target.unsafeGetTensorImpl()->data());
}

}  // namespace

std::function<void()> small_relu(const at::Tensor& to, const at::Tensor& x) {
  // Processors differ in the larger one of 0 and -0.
  using Limits = std::numeric_limits<float>;
  const float special[] = {0.0F,
                           -0.0F,
                           Limits::quiet_NaN(),
                           Limits::infinity(),
                           -Limits::infinity(),
                           Limits::denorm_min(),
                           -Limits::denorm_min()};
  const auto example = some_numbers({64 + std::ssize(special)}, 1), ours = at::empty_like(example);
  std::ranges::copy(special, mutable_values(example));       // in a vector,
  std::ranges::copy(special, mutable_values(example) + 64);  // and in what does not fill one
  auto theirs = at::empty_like(example);
  at::cpu::clamp_min_out(theirs, example, 0);
  relu(values(example), example.numel(), mutable_values(ours));
  if (!have_same_bits(ours, theirs)) return nullptr;
  return [to, x, size = x.numel()] { relu(values(x), size, mutable_values(to)); };
}

std::function<void()> small_threshold_backward(const at::Tensor& to, const at::Tensor& gradient, const at::Tensor& x,
                                               float threshold) {
  return
      [=, size = x.numel()] { threshold_backward(values(gradient), values(x), threshold, size, mutable_values(to)); };
}

std::function<void()> small_sum_of_rows(const at::Tensor& to, const at::Tensor& x) {
  const auto num_rows = x.size(0), num_columns = x.size(1);
  if (x.numel() == 0 || num_rows >= kMaxRows) return nullptr;
  const auto ours = at::empty({num_columns}, at::kFloat);
  auto theirs = at::empty_like(ours);
  for (const int64_t group : {64, 32, 16}) {
    const bool is_alike = for_examples(num_columns, [&](uint32_t seed) {
      const auto example = some_numbers(x.sizes(), seed);
      at::cpu::sum_out(theirs, example, 0);
      sum_of_rows(values(example), num_rows, num_columns, group, mutable_values(ours));
      return have_same_bits(ours, theirs);
    });
    if (!is_alike) continue;
    return [=] { sum_of_rows(values(x), num_rows, num_columns, group, mutable_values(to)); };
  }
  return nullptr;
}

std::function<void()> small_log_softmax(const at::Tensor& to, const at::Tensor& x) {
#ifdef __x86_64__
  if (!is_for_short_rows(x)) return nullptr;
  const auto num_rows = x.size(0), num_columns = x.size(1);
  const auto example = some_numbers(x.sizes(), 1), ours = at::empty_like(example);
  auto theirs = at::empty_like(example);
  at::cpu::_log_softmax_out(theirs, example, 1, false);
  log_softmax(values(example), num_rows, num_columns, mutable_values(ours));
  if (!have_same_bits(ours, theirs)) return nullptr;
  return [=] { log_softmax(values(x), num_rows, num_columns, mutable_values(to)); };
#else
  return nullptr;
#endif
}

std::function<void()> small_log_softmax_backward(const at::Tensor& to, const at::Tensor& gradient,
                                                 const at::Tensor& y) {
#ifdef __x86_64__
  if (!is_for_short_rows(y)) return nullptr;
  const auto num_rows = y.size(0), num_columns = y.size(1);
  const auto example = some_numbers(y.sizes(), 1), its_gradient = some_numbers(y.sizes(), 2),
             ours = at::empty_like(example);
  auto theirs = at::empty_like(example), example_y = at::empty_like(example);
  at::cpu::_log_softmax_out(example_y, example, 1, false);
  at::cpu::_log_softmax_backward_data_out(theirs, its_gradient, example_y, 1, at::kFloat);
  log_softmax_backward(values(its_gradient), values(example_y), num_rows, num_columns, mutable_values(ours));
  if (!have_same_bits(ours, theirs)) return nullptr;
  return [=] { log_softmax_backward(values(gradient), values(y), num_rows, num_columns, mutable_values(to)); };
#else
  return nullptr;
#endif
}

std::function<void()> small_nll_mean(const at::Tensor& to, const at::Tensor& num_counted, const at::Tensor& x,
                                     const at::Tensor& target, int64_t ignored, std::function<void()> theirs) {
  const auto rows = x.size(0), columns = x.size(1);
  const auto some_classes = at::empty(target.sizes(), at::kLong);
  for (int64_t i = 0; i < rows; ++i) some_classes.mutable_data_ptr<int64_t>()[i] = i * i % columns;
  auto loss = at::empty_like(to), count = at::empty_like(num_counted);
  const auto our_loss = at::empty_like(to), our_count = at::empty_like(num_counted);
  const bool is_alike = for_examples(1, [&](uint32_t seed) {
    const auto example = some_numbers(x.sizes(), seed);
    at::cpu::nll_loss_forward_out(loss, count, example, some_classes, {}, at::Reduction::Mean, ignored);
    const auto mean =
        nll_mean(values(example), classes(some_classes), rows, columns, ignored, *mutable_values(our_count));
    *mutable_values(our_loss) = mean.value_or(0);
    return mean && have_same_bits(loss, our_loss) && have_same_bits(count, our_count);
  });
  if (!is_alike) return theirs;
  return [=, theirs = std::move(theirs)] {
    const auto its_mean = nll_mean(values(x), classes(target), rows, columns, ignored, *mutable_values(num_counted));
    if (!its_mean) return theirs();
    *mutable_values(to) = *its_mean;
  };
}

std::function<void()> small_nll_mean_backward(const at::Tensor& to, const at::Tensor& gradient,
                                              const at::Tensor& target, int64_t ignored, const at::Tensor& num_counted,
                                              std::function<void()> theirs) {
  return [=, rows = to.size(0), columns = to.size(1), theirs = std::move(theirs)] {
    float* row = mutable_values(to);
    std::fill_n(row, rows * columns, 0.0F);
    const float each = -(*values(gradient) / *values(num_counted));
    const auto* its_class = classes(target);
    for (int64_t i = 0; i < rows; ++i, row += columns) {
      if (its_class[i] == ignored) continue;
      if (its_class[i] < 0 || its_class[i] >= columns) return theirs();
      row[its_class[i]] = each;
    }
  };
}

}  // namespace yoke::train::detail
