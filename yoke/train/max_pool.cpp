#include "yoke/train/detail/max_pool.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d_with_indices_cpu_dispatch.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "yoke/train/detail/own_kernels.h"

namespace yoke::train::detail {
namespace {

constexpr int64_t kNumbersOfThread = 64 << 10;  // fewer are not worth the start of another one

/// One number for both directions, or two; nothing else is handled here.
std::optional<std::pair<int64_t, int64_t>> both(at::IntArrayRef numbers) {
  if (numbers.size() == 1) return std::pair(numbers[0], numbers[0]);
  if (numbers.size() == 2) return std::pair(numbers[0], numbers[1]);
  return std::nullopt;
}

bool is_within(std::pair<int64_t, int64_t> numbers, int64_t low, int64_t high) {
  return std::min(numbers.first, numbers.second) >= low && std::max(numbers.first, numbers.second) <= high;
}

/// What the loops have to do; nothing if libtorch has to do it, or to say what is wrong.
std::optional<MaxPool> pool_of(const at::Tensor& x, at::IntArrayRef window, at::IntArrayRef stride,
                               at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
  constexpr int64_t kMaxWindow = 64, kMaxNumbers = (1 << 30) - 1;
  const auto windows = both(window), strides = stride.empty() ? windows : both(stride), paddings = both(padding),
             dilations = both(dilation);
  if (!windows || !strides || !paddings || !dilations || ceil_mode) return std::nullopt;
  if (!is_within(*windows, 1, kMaxWindow) || !is_within(*strides, 1, kMaxWindow) || !is_within(*dilations, 1, 1) ||
      !is_within(*paddings, 0, kMaxWindow) || 2 * paddings->first > windows->first ||
      2 * paddings->second > windows->second) {
    return std::nullopt;
  }
  const bool has_loop = x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
  if (!has_loop || !x.is_cpu() || x.layout() != at::kStrided || x.numel() == 0) return std::nullopt;
  if ((x.dim() != 3 && x.dim() != 4) || x.suggest_memory_format() != at::MemoryFormat::Contiguous) return std::nullopt;
  const int64_t height = x.size(-2), width = x.size(-1);
  if (height > kMaxNumbers || width > kMaxNumbers / height) return std::nullopt;
  MaxPool pool{.height = height,
               .width = width,
               .out_height = 0,
               .out_width = 0,
               .window_height = windows->first,
               .window_width = windows->second,
               .stride_height = strides->first,
               .stride_width = strides->second,
               .top = paddings->first,
               .left = paddings->second};
  const int64_t rest_height = height + 2 * pool.top - pool.window_height;
  const int64_t rest_width = width + 2 * pool.left - pool.window_width;
  if (rest_height < 0 || rest_width < 0) return std::nullopt;
  pool.out_height = rest_height / pool.stride_height + 1;
  pool.out_width = rest_width / pool.stride_width + 1;
  return pool;
}

/// Returns false if libtorch must compute the results instead. T has the bits of the tensor's numbers.
template <class T>
bool pool_into(const MaxPool& pool, const at::Tensor& x, const at::Tensor& y, const at::Tensor& index) {
  const int64_t size = pool.height * pool.width, out_size = pool.out_height * pool.out_width;
  const auto* from = static_cast<const T*>(x.const_data_ptr());
  auto* to = static_cast<T*>(y.mutable_data_ptr());
  auto* its_index = index.mutable_data_ptr<int64_t>();
  std::atomic<bool> is_done = true;
  at::parallel_for(0, x.numel() / size, std::max<int64_t>(1, kNumbersOfThread / size), [&](int64_t begin, int64_t end) {
    if (!pool_planes(pool, from + begin * size, end - begin, to + begin * out_size, its_index + begin * out_size)) {
      is_done = false;
    }
  });
  return is_done;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> max_pool2d(const at::Tensor& given, at::IntArrayRef window, at::IntArrayRef stride,
                                              at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
  const auto by_libtorch = [&] {
    return at::cpu::max_pool2d_with_indices(given, window, stride, padding, dilation, ceil_mode);
  };
  const auto pool = pool_of(given, window, stride, padding, dilation, ceil_mode);
  if (!pool) return by_libtorch();
  const auto x = given.contiguous();
  auto sizes = x.sizes().vec();
  sizes[sizes.size() - 2] = pool->out_height;
  sizes[sizes.size() - 1] = pool->out_width;
  const auto y = at::empty(sizes, x.options());
  const auto index = at::empty(sizes, x.options().dtype(at::kLong));
  const bool is_done =
      x.scalar_type() == at::kFloat ? pool_into<float>(*pool, x, y, index) : pool_into<uint16_t>(*pool, x, y, index);
  if (!is_done) return by_libtorch();
  return {y, index};
}

}  // namespace yoke::train::detail
