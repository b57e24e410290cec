#include "yoke/train/shard/detail/clip.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>

#include "yoke/dist/group.h"
#include "yoke/train/detail/last_clip.h"

namespace yoke::train {
namespace {

constexpr double kEpsilon = 1e-6;  // PyTorch's value

}  // namespace

at::Tensor clip_sharded_grad_norm(dist::Group& group, const std::vector<at::Tensor>& gradients, double max_norm) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> norms;
  for (const auto& gradient : gradients) {
    const auto dtype = at::promote_types(gradient.scalar_type(), at::kFloat);
    norms.push_back(at::linalg_vector_norm(gradient, 2, std::nullopt, false, dtype).to(at::kDouble));
  }
  // In double, because the square of a float norm may overflow float.
  const auto square = norms.empty() ? at::zeros({}, at::TensorOptions(at::kDouble).device(group.device()))
                                    : at::linalg_vector_norm(at::stack(norms)).square();
  group.all_reduce(square);
  const auto norm = square.sqrt().to(at::kFloat);
  const auto factor = (max_norm / (norm + kEpsilon)).clamp_max(1.0);
  for (const auto& gradient : gradients) gradient.mul_(factor);
  detail::last_clip() = {.max_norm = max_norm, .norm = norm, .ranks = group.ranks()};
  return norm;
}

}  // namespace yoke::train
