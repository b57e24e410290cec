#include "yoke/train/detail/max_pool.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d_with_indices_backward_cpu_dispatch.h>
#include <ATen/ops/max_pool2d_with_indices_cpu_dispatch.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "yoke/train/detail/own_kernels.h"

namespace yoke::train::detail {
namespace {

/// How many images or rows of `size` numbers a thread takes at least: fewer are not worth the start of another one.
int64_t num_of_thread(int64_t size) { return std::max<int64_t>(1, (64 << 10) / size); }

/// One number for both directions, or two; nothing else is handled here.
std::optional<std::pair<int64_t, int64_t>> both(at::IntArrayRef numbers) {
  if (numbers.size() == 1) return std::pair(numbers[0], numbers[0]);
  if (numbers.size() == 2) return std::pair(numbers[0], numbers[1]);
  return std::nullopt;
}

bool is_within(std::pair<int64_t, int64_t> numbers, int64_t low, int64_t high) {
  return std::min(numbers.first, numbers.second) >= low && std::max(numbers.first, numbers.second) <= high;
}

bool is_of_planes(const at::Tensor& x) { return x.suggest_memory_format() == at::MemoryFormat::Contiguous; }
bool is_channels_last(const at::Tensor& x) { return x.suggest_memory_format() == at::MemoryFormat::ChannelsLast; }

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
  if (x.dim() != 3 && x.dim() != 4) return std::nullopt;
  if (!is_of_planes(x) && (!is_channels_last(x) || x.size(1) < kMinChannels)) return std::nullopt;
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

/// These return false if libtorch must compute the results instead. T has the bits of the tensor's numbers.
template <class T>
bool pool_into(const MaxPool& pool, const at::Tensor& x, const at::Tensor& y, const at::Tensor& index) {
  const int64_t size = pool.height * pool.width, out_size = pool.out_height * pool.out_width;
  const auto* from = static_cast<const T*>(x.const_data_ptr());
  auto* to = static_cast<T*>(y.mutable_data_ptr());
  auto* its_index = index.mutable_data_ptr<int64_t>();
  if (is_channels_last(x)) {
    const int64_t channels = x.size(1), row = std::max<int64_t>(1, size * channels / pool.out_height);
    at::parallel_for(0, x.size(0) * pool.out_height, num_of_thread(row), [&](int64_t begin, int64_t end) {
      pool_channels_last(pool, from, channels, begin, end, to, its_index);
    });
    return true;
  }
  std::atomic<bool> is_done = true;
  at::parallel_for(0, x.numel() / size, num_of_thread(size), [&](int64_t begin, int64_t end) {
    if (!pool_planes(pool, from + begin * size, end - begin, to + begin * out_size, its_index + begin * out_size)) {
      is_done = false;
    }
  });
  return is_done;
}

template <class T>
bool spread_into(const MaxPool& pool, const at::Tensor& gradient, const at::Tensor& index, const at::Tensor& x) {
  const int64_t channels = x.size(1), size = pool.height * pool.width * channels,
                out_size = pool.out_height * pool.out_width * channels;
  const auto* from = static_cast<const T*>(gradient.const_data_ptr());
  const auto* its_index = index.const_data_ptr<int64_t>();
  auto* to = static_cast<T*>(x.mutable_data_ptr());
  std::atomic<bool> is_done = true;
  at::parallel_for(0, x.size(0), num_of_thread(size), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (!spread_channels_last(pool, from + i * out_size, its_index + i * out_size, channels, to + i * size)) {
        is_done = false;
      }
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
  const auto format = given.suggest_memory_format();
  const auto x = given.contiguous(format);
  auto sizes = x.sizes().vec();
  sizes[sizes.size() - 2] = pool->out_height;
  sizes[sizes.size() - 1] = pool->out_width;
  const auto y = at::empty(sizes, x.options(), format);
  const auto index = at::empty(sizes, x.options().dtype(at::kLong), format);
  const bool is_done =
      x.scalar_type() == at::kFloat ? pool_into<float>(*pool, x, y, index) : pool_into<uint16_t>(*pool, x, y, index);
  if (!is_done) return by_libtorch();
  return {y, index};
}

at::Tensor max_pool2d_backward(const at::Tensor& gradient, const at::Tensor& x, at::IntArrayRef window,
                               at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                               bool ceil_mode, const at::Tensor& index) {
  const auto by_libtorch = [&] {
    return at::cpu::max_pool2d_with_indices_backward(gradient, x, window, stride, padding, dilation, ceil_mode, index);
  };
  const auto pool = pool_of(x, window, stride, padding, dilation, ceil_mode);
  if (!pool || !is_channels_last(x) || !pool->is_disjoint()) return by_libtorch();
  const std::vector<int64_t> sizes{x.size(0), x.size(1), pool->out_height, pool->out_width};
  if (!gradient.is_cpu() || !index.is_cpu() || gradient.sizes() != sizes || index.sizes() != sizes ||
      gradient.scalar_type() != x.scalar_type() || index.scalar_type() != at::kLong) {
    return by_libtorch();
  }
  constexpr auto kFormat = at::MemoryFormat::ChannelsLast;
  const auto from = gradient.contiguous(kFormat), its_index = index.contiguous(kFormat);
  const auto result = at::empty(x.sizes(), x.options(), kFormat);
  const bool is_done = x.scalar_type() == at::kFloat ? spread_into<float>(*pool, from, its_index, result)
                                                     : spread_into<uint16_t>(*pool, from, its_index, result);
  return is_done ? result : by_libtorch();
}

}  // namespace yoke::train::detail
