// Matrix products make the call of BLAS that libtorch makes (ATen/native/LinearAlgebra.cpp, addmm_impl_cpu_), and
// other operators call libtorch's kernels or have loops that were compared with them, so the bits are the same.
#include "yoke/train/record/detail/kernels.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/_log_softmax_backward_data_cpu_dispatch.h>
#include <ATen/ops/_log_softmax_cpu_dispatch.h>
#include <ATen/ops/clamp_min_cpu_dispatch.h>
#include <ATen/ops/nll_loss_backward_cpu_dispatch.h>
#include <ATen/ops/nll_loss_forward_cpu_dispatch.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#include <ATen/ops/threshold_backward_cpu_dispatch.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "yoke/train/record/detail/small_kernels.h"

// libtorch has BLAS in it. On platforms where it does not show this symbol, matrix products are called as operators.
extern "C" void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
                       const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
                       const float* beta, float* c, const int* ldc) __attribute__((weak));

namespace yoke::train::detail {
namespace {

/// Bounds the memory that direct calls keep. The larger a tensor, the less they gain.
constexpr size_t kMaxDirectBytes = size_t{256} << 10;

bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
}

/// Of one shape, too.
bool are_plain(std::initializer_list<at::Tensor> tensors) {
  const auto& first = *tensors.begin();
  return std::ranges::all_of(
      tensors, [&](const at::Tensor& tensor) { return is_plain(tensor) && tensor.sizes() == first.sizes(); });
}

/// Of one class for each row.
bool is_nll_mean(const at::Tensor& x, const at::Tensor& target, const std::optional<at::Tensor>& weight,
                 int64_t reduction) {
  return x.dim() == 2 && is_plain(x) && x.numel() > 0 && x.nbytes() <= kMaxDirectBytes &&
         target.scalar_type() == at::kLong && target.is_contiguous() && !(weight && weight->defined()) &&
         reduction == at::Reduction::Mean;
}

bool is_last(int64_t dim, const at::Tensor& tensor) { return dim == tensor.dim() - 1 || dim == -1; }

/// One factor of a product as BLAS, whose matrices are in the order of columns, reads it.
struct Factor {
  char transposed = 'n';
  int stride = 0;
};

std::optional<Factor> factor(const at::Tensor& matrix) {
  if (matrix.dim() != 2 || matrix.scalar_type() != at::kFloat) return std::nullopt;
  const auto rows = matrix.size(0), columns = matrix.size(1);
  if (rows < 2 || columns < 2) return std::nullopt;  // libtorch's rules for these have exceptions
  if (matrix.stride(1) == 1 && matrix.stride(0) >= columns) return Factor{'n', static_cast<int>(matrix.stride(0))};
  if (matrix.stride(0) == 1 && matrix.stride(1) >= rows) return Factor{'t', static_cast<int>(matrix.stride(1))};
  return std::nullopt;
}

/// result = left x right, and with a bias in each row if that is defined.
std::function<void()> product(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right,
                              const at::Tensor& bias) {
  const auto a = factor(right), b = factor(left);
  if (sgemm_ == nullptr || !a || !b || !is_plain(result) || result.dim() != 2) return nullptr;
  const int rows = static_cast<int>(result.size(0)), columns = static_cast<int>(result.size(1)),
            inner = static_cast<int>(left.size(1));
  if (rows < 2 || columns < 2) return nullptr;
  if (bias.defined() && !(is_plain(bias) && bias.dim() == 1 && bias.size(0) == columns)) return nullptr;
  return [=, a = *a, b = *b] {
    float* to = mutable_values(result);
    if (bias.defined()) {
      const float* from = values(bias);
      for (int row = 0; row < rows; ++row) std::copy_n(from, columns, to + static_cast<int64_t>(row) * columns);
    }
    const float one = 1, beta = bias.defined() ? 1 : 0;
    sgemm_(&a.transposed, &b.transposed, &columns, &rows, &inner, &one, values(right), &a.stride, values(left),
           &b.stride, &beta, to, &columns);
  };
}

bool is_one(const c10::IValue& number) { return number.isScalar() && number.toScalar().equal(1); }

}  // namespace

std::function<void()> direct_kernel(const RecordedCall& call, const std::vector<at::Tensor>& results) {
  if (!call.op || results.empty()) return nullptr;
  for (const auto& result : results) {
    if (result.nbytes() > kMaxDirectBytes) return nullptr;
  }
  const std::string_view name = call.op->schema().name(), overload = call.op->schema().overload_name();
  const auto& in = call.arguments;
  const auto& out = results[0];
  if (name == "aten::mm" && overload.empty()) return product(out, in[0].toTensor(), in[1].toTensor(), {});
  if (name == "aten::addmm" && overload.empty()) {
    if (!is_one(in[3]) || !is_one(in[4])) return nullptr;
    return product(out, in[1].toTensor(), in[2].toTensor(), in[0].toTensor());
  }
  if (name == "aten::ones_like" && is_plain(out)) {
    return [to = out, size = out.numel()] { std::fill_n(mutable_values(to), size, 1.0F); };
  }
  if (name == "aten::relu" && is_plain(in[0].toTensor())) {
    const auto& x = in[0].toTensor();
    if (auto small = small_relu(out, x)) return small;
    return [to = at::Tensor(out), x]() mutable { at::cpu::clamp_min_out(to, x, 0); };
  }
  if (name == "aten::threshold_backward" && overload.empty()) {
    const auto &g = in[0].toTensor(), &x = in[1].toTensor();
    if (are_plain({out, g, x})) return small_threshold_backward(out, g, x, in[2].toScalar().toFloat());
    return [to = at::Tensor(out), g, x, threshold = in[2].toScalar()]() mutable {
      at::cpu::threshold_backward_out(to, g, x, threshold);
    };
  }
  if (name == "aten::sum" && overload == "dim_IntList" && in[1].isIntList() && is_plain(in[0].toTensor()) &&
      in[3].isNone()) {
    const auto& x = in[0].toTensor();
    const auto dims = in[1].toIntVector();
    if (x.dim() == 2 && x.nbytes() <= kMaxDirectBytes && dims == std::vector<int64_t>{0} && is_plain(out)) {
      if (auto small = small_sum_of_rows(out, x)) return small;
    }
    return [to = at::Tensor(out), x, dims, keep = in[2].toBool()]() mutable { at::cpu::sum_out(to, x, dims, keep); };
  }
  if (name == "aten::_log_softmax" && overload.empty()) {
    const auto& x = in[0].toTensor();
    const auto dim = in[1].toInt();
    if (are_plain({out, x}) && is_last(dim, x)) {
      if (auto small = small_log_softmax(out, x)) return small;
    }
    return [to = at::Tensor(out), x, dim, half = in[2].toBool()]() mutable {
      at::cpu::_log_softmax_out(to, x, dim, half);
    };
  }
  if (name == "aten::_log_softmax_backward_data" && overload.empty()) {
    const auto &g = in[0].toTensor(), &y = in[1].toTensor();
    const auto dim = in[2].toInt();
    if (are_plain({out, g, y}) && is_last(dim, y)) {
      if (auto small = small_log_softmax_backward(out, g, y)) return small;
    }
    return [to = at::Tensor(out), g, y, dim, dtype = in[3].toScalarType()]() mutable {
      at::cpu::_log_softmax_backward_data_out(to, g, y, dim, dtype);
    };
  }
  if (name == "aten::nll_loss_forward" && overload.empty() && results.size() == 2) {
    const auto &num_counted = results[1], &x = in[0].toTensor(), &y = in[1].toTensor();
    const auto weight = in[2].toOptional<at::Tensor>();
    const auto reduction = in[3].toInt(), ignored = in[4].toInt();
    std::function<void()> theirs = [=, to = at::Tensor(out), count = at::Tensor(num_counted)]() mutable {
      at::cpu::nll_loss_forward_out(to, count, x, y, weight, reduction, ignored);
    };
    if (!is_nll_mean(x, y, weight, reduction)) return theirs;
    return small_nll_mean(out, num_counted, x, y, ignored, std::move(theirs));
  }
  if (name == "aten::nll_loss_backward" && overload.empty()) {
    const auto &g = in[0].toTensor(), &x = in[1].toTensor(), &y = in[2].toTensor(), &num_counted = in[6].toTensor();
    const auto weight = in[3].toOptional<at::Tensor>();
    const auto reduction = in[4].toInt(), ignored = in[5].toInt();
    std::function<void()> theirs = [=, to = at::Tensor(out)]() mutable {
      at::cpu::nll_loss_backward_out(to, g, x, y, weight, reduction, ignored, num_counted);
    };
    if (!is_nll_mean(x, y, weight, reduction) || !is_plain(g) || !is_plain(out)) return theirs;
    return small_nll_mean_backward(out, g, y, ignored, num_counted, std::move(theirs));
  }
  return nullptr;
}

std::function<void()> direct_write(const RecordedCall& call) {
  const std::string_view name = call.op->schema().name(), overload = call.op->schema().overload_name();
  const auto& in = call.arguments;
  const auto are_alike = [](const at::Tensor& to, const at::Tensor& from) {
    return is_plain(to) && is_plain(from) && to.sizes() == from.sizes() && !to.is_alias_of(from) &&
           to.nbytes() <= kMaxDirectBytes;
  };
  if (name == "aten::copy_" && are_alike(in[0].toTensor(), in[1].toTensor())) {
    return [to = in[0].toTensor(), from = in[1].toTensor(), size = in[0].toTensor().numel()] {
      std::copy_n(values(from), size, mutable_values(to));
    };
  }
  if (name == "aten::mul" && overload == "out" && are_alike(in[2].toTensor(), in[0].toTensor())) {
    const auto& number = in[1].toTensor();
    if (!number.unsafeGetTensorImpl()->is_wrapped_number() || number.scalar_type() != at::kDouble) return nullptr;
    const auto factor = static_cast<float>(*number.const_data_ptr<double>());
    return [to = in[2].toTensor(), from = in[0].toTensor(), factor, size = in[0].toTensor().numel()] {
      std::transform(values(from), values(from) + size, mutable_values(to),
                     [factor](float value) { return value * factor; });
    };
  }
  return nullptr;
}

}  // namespace yoke::train::detail
