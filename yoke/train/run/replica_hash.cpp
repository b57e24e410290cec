#include "yoke/train/run/detail/replica_hash.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "yoke/train/data/sample_random.h"

namespace yoke::train::detail {
namespace {

/// Elements are arranged in rows of this size; the factor of an element is that of its row times that of its column.
constexpr int64_t kColumns = 4096;
constexpr int64_t kRowsAtOnce = 2048;  // 64 MiB of int64

constexpr uint64_t factor_of_column(int64_t column) { return SampleRandom::mix(static_cast<uint64_t>(column)) | 1; }
constexpr uint64_t factor_of_row(int64_t row) { return SampleRandom::mix(~static_cast<uint64_t>(row)) | 1; }

const std::array<uint64_t, kColumns>& column_factors() {
  static const auto factors = [] {
    std::array<uint64_t, kColumns> result;
    for (int64_t i = 0; i < kColumns; ++i) result[static_cast<size_t>(i)] = factor_of_column(i);
    return result;
  }();
  return factors;
}

/// Column factors, and those of the first rows, on a device.
struct Factors {
  at::Tensor columns, rows;
};

at::Tensor factors_on(const at::Device& device, int64_t count, uint64_t (*factor)(int64_t)) {
  const auto result = at::empty({count}, at::kLong);
  auto* values = result.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<int64_t>(factor(i));
  return result.to(device);
}

Factors factors_of(const at::Device& device, int64_t num_rows) {
  static std::mutex mutex;
  static std::map<std::string, Factors> by_device;
  const std::lock_guard lock(mutex);
  auto& known = by_device[device.str()];
  if (!known.columns.defined()) known.columns = factors_on(device, kColumns, factor_of_column);
  if (!known.rows.defined() || known.rows.size(0) < num_rows) {
    known.rows = factors_on(device, std::max<int64_t>(64, 2 * num_rows), factor_of_row);
  }
  return known;
}

/// All elements as integers [n] in the order of memory.
at::Tensor bits_of(const at::Tensor& given) {
  auto tensor = given.detach();
  if (tensor.is_complex()) tensor = at::view_as_real(tensor.resolve_conj());
  tensor =
      tensor.is_non_overlapping_and_dense() ? tensor.as_strided({tensor.numel()}, {1}) : tensor.contiguous().view({-1});
  const auto size = tensor.element_size();
  return tensor.view(size >= 4 ? at::kInt : size == 2 ? at::kShort : at::kByte);
}

template <class Bits>
uint64_t sum_of(const Bits* bits, int64_t count) {
  const auto& factors = column_factors();
  uint64_t sum = 0;
  for (int64_t row = 0; row * kColumns < count; ++row) {
    const int64_t num_columns = std::min(kColumns, count - row * kColumns);
    const auto* values = bits + row * kColumns;
    uint64_t of_row = 0;
    for (int64_t i = 0; i < num_columns; ++i) {
      of_row += static_cast<uint64_t>(static_cast<int64_t>(values[i])) * factors[static_cast<size_t>(i)];
    }
    sum += of_row * factor_of_row(row);
  }
  return sum;
}

}  // namespace

at::Tensor replica_hash_by_operations(const at::Tensor& tensor) {
  const c10::NoGradGuard no_grad;
  const auto bits = bits_of(tensor);
  const int64_t count = bits.numel(), num_full = count / kColumns;
  const auto factors = factors_of(bits.device(), num_full + 1);
  auto sum = at::zeros({}, bits.options().dtype(at::kLong));
  for (int64_t row = 0; row < num_full; row += kRowsAtOnce) {
    const int64_t num_rows = std::min(kRowsAtOnce, num_full - row);
    const auto rows = bits.narrow(0, row * kColumns, num_rows * kColumns).view({num_rows, kColumns});
    sum.add_((rows * factors.columns).sum(1).mul_(factors.rows.narrow(0, row, num_rows)).sum());
  }
  if (const int64_t rest = count - num_full * kColumns; rest > 0) {
    const auto of_row = (bits.narrow(0, num_full * kColumns, rest) * factors.columns.narrow(0, 0, rest)).sum();
    sum.add_(of_row * factors.rows[num_full]);
  }
  return sum;
}

at::Tensor replica_hash(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu()) return replica_hash_by_operations(tensor);
  const auto bits = bits_of(tensor);
  const int64_t count = bits.numel();
  const void* data = bits.const_data_ptr();
  const uint64_t sum = bits.scalar_type() == at::kInt     ? sum_of(static_cast<const int32_t*>(data), count)
                       : bits.scalar_type() == at::kShort ? sum_of(static_cast<const int16_t*>(data), count)
                                                          : sum_of(static_cast<const uint8_t*>(data), count);
  return at::scalar_tensor(static_cast<int64_t>(sum), at::kLong);
}

}  // namespace yoke::train::detail
