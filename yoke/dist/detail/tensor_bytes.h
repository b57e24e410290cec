// yoke/dist/detail/tensor_bytes.h -- where the bytes of tensors lie that ranks exchange in shared memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace yoke::dist {

/// The memory of a tensor. That of an empty one is not null, because ranks wait for it, too.
inline std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  static std::byte nothing;
  if (tensor.numel() == 0) return {&nothing, 0};
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), static_cast<size_t>(tensor.nbytes())};
}

inline void check_dense(const char* what, const at::Tensor& tensor) {
  TORCH_CHECK(
      tensor.layout() == at::kStrided && tensor.is_cpu() && tensor.is_non_overlapping_and_dense(), what,
      ": ranks of one host share dense, contiguous tensors of the CPU; this one is not (contiguous() makes one)");
}

inline bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto one = bytes_of(a), other = bytes_of(b);
  return std::less<>()(one.data(), other.data() + other.size()) && std::less<>()(other.data(), one.data() + one.size());
}

/// Contiguous, and a copy if the outputs lie where other ranks, or later rounds, still read it. An output may be the
/// part of the input that is its own.
inline at::Tensor contiguous_input(const at::Tensor& input, bool is_overwritten) {
  return is_overwritten ? input.clone(at::MemoryFormat::Contiguous) : input.contiguous();
}

/// Contiguous tensors in place of `given`; `after` copies them back where they are others.
inline std::vector<at::Tensor> contiguous_outputs(const std::vector<at::Tensor>& given, std::function<void()>& after) {
  std::vector<at::Tensor> result;
  bool differ = false;
  for (const auto& tensor : given) {
    result.push_back(tensor.contiguous());
    differ |= !result.back().is_same(tensor);
  }
  if (differ) {
    after = [given, result] {
      for (size_t i = 0; i < given.size(); ++i) given[i].copy_(result[i]);
    };
  }
  return result;
}

}  // namespace yoke::dist
