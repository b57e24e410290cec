#include "yoke/train/optim/clip_grad.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <map>
#include <tuple>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/dist/group.h"
#include "yoke/train/detail/averaged_in_step.h"
#include "yoke/train/detail/last_clip.h"
#include "yoke/train/detail/recording.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

using Lists = std::vector<std::vector<at::Tensor>>;

/// Collects gradients or parameters into one list for each device and dtype, because all tensors of a foreach kernel
/// must have the same device and dtype. The lists are in the order of their first parameters.
enum class Listed { kGradients, kParameters };
Lists lists_of(const NamedTensors& parameters, Listed listed) {
  using Key = std::tuple<c10::DeviceType, c10::DeviceIndex, at::ScalarType>;
  std::map<Key, size_t> positions;
  Lists lists;
  auto* recording = detail::recording_on_this_thread();
  for (const auto& [name, parameter] : distinct(parameters)) {
    require_elements("clip_grad", name, parameter);
    if (recording != nullptr && listed == Listed::kGradients) recording->use_gradient(parameter);
    const at::Tensor& tensor = listed == Listed::kGradients ? parameter.grad() : parameter;
    if (!tensor.defined() || tensor.numel() == 0) continue;  // an infinity norm of no elements is an error of libtorch
    if (tensor.layout() != at::kStrided) {
      throw Error(ErrorCode::kInvalidArgument, "clip_grad: the gradient of '{}' is sparse; only dense ones are taken",
                  name);
    }
    const auto device = tensor.device();
    const auto [found, is_new] =
        positions.try_emplace({device.type(), device.index(), tensor.scalar_type()}, lists.size());
    if (is_new) lists.emplace_back();
    lists[found->second].push_back(tensor);
  }
  return lists;
}

void check_are_means(const NamedTensors& parameters) {
  for (const auto& [name, parameter] : parameters) {
    if (detail::averaging_in_step(parameter) == detail::InStep::kNot) continue;
    throw Error(ErrorCode::kFailedPrecondition,
                "clip_grad: the gradient of '{}' is this rank's own until the step of its ShardedOptimizer averages it "
                "(GradientMean::kInStep): call clip_grad_norm or clip_grad_value of the optimizer",
                name);
  }
}

void check_max_norm(double max_norm) {
  if (max_norm > 0) return;
  throw Error(ErrorCode::kInvalidArgument, "clip_grad: max_norm {} must be above 0", max_norm);
}

at::Tensor norm_of(const Lists& lists, double norm_type) {
  if (!(norm_type > 0)) throw Error(ErrorCode::kInvalidArgument, "clip_grad: norm_type {} must be above 0", norm_type);
  if (lists.empty()) return at::zeros({});
  const auto device = lists.front().front().device();
  std::vector<at::Tensor> norms;
  for (const auto& list : lists) {
    for (const auto& norm : at::_foreach_norm(list, norm_type)) {
      norms.push_back(norm.to(device, /*non_blocking=*/!device.is_cpu()));
    }
  }
  return at::linalg_vector_norm(at::stack(norms), norm_type);
}

/// Returns each list's norm over all ranks. REQUIRES: each rank has a part of every parameter.
std::vector<at::Tensor> norms_over_ranks(const NamedTensors& parameters, const std::vector<Lists>& lists,
                                         double norm_type) {
  std::vector<at::Tensor> norms;
  for (const auto& list : lists) norms.push_back(norm_of(list, norm_type));
  size_t num_parts = 0;
  dist::Group* group = nullptr;
  for (const auto& [name, parameter] : parameters) {
    const auto* sharding = sharding_of(parameter);
    if (sharding == nullptr) continue;
    group = sharding->group;
    ++num_parts;
  }
  if (num_parts == 0) return norms;
  if (num_parts < parameters.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "clip_grad: some parameters are parts of tensors that are divided between ranks, and some are whole; "
                "their norms count differently: clip them apart");
  }
  for (auto& norm : norms) norm = norm.to(group->device(), at::kDouble);  // the power of a float may overflow float
  const auto total = at::stack(norms);
  if (std::isinf(norm_type)) {
    group->all_reduce(total, dist::ReduceOp::kMax);
    return total.to(at::kFloat).unbind();
  }
  total.pow_(norm_type);
  group->all_reduce(total);
  return total.pow_(1 / norm_type).to(at::kFloat).unbind();
}

at::Tensor norm_over_ranks(const NamedTensors& parameters, const Lists& lists, double norm_type) {
  return norms_over_ranks(parameters, {lists}, norm_type).front();
}

void scale(const Lists& lists, double max_norm, const at::Tensor& norm) {
  const auto factor = norm.add(1e-6).reciprocal_().mul_(max_norm).clamp_max_(1.0);
  for (const auto& list : lists) {
    at::_foreach_mul_(list, factor.to(list.front().device(), /*non_blocking=*/true));
  }
}

}  // namespace

detail::LastClip& detail::last_clip() {
  thread_local LastClip last;
  return last;
}

at::Tensor grad_norm(const NamedTensors& parameters, double norm_type) {
  const at::NoGradGuard no_grad;
  return norm_over_ranks(parameters, lists_of(parameters, Listed::kGradients), norm_type);
}

Norms norms(const NamedTensors& parameters, double norm_type) {
  const at::NoGradGuard no_grad;
  auto both = norms_over_ranks(
      parameters, {lists_of(parameters, Listed::kParameters), lists_of(parameters, Listed::kGradients)}, norm_type);
  return {.parameters = both[0], .gradients = both[1]};
}

void scale_grads_to_norm(const NamedTensors& parameters, double max_norm, const at::Tensor& norm) {
  const at::NoGradGuard no_grad;
  check_max_norm(max_norm);
  check_are_means(parameters);
  scale(lists_of(parameters, Listed::kGradients), max_norm, norm);
}

at::Tensor clip_grad_norm(const NamedTensors& parameters, const ClipGradNormOptions& options) {
  const at::NoGradGuard no_grad;
  check_max_norm(options.max_norm);
  check_are_means(parameters);
  const auto lists = lists_of(parameters, Listed::kGradients);
  const auto norm = norm_over_ranks(parameters, lists, options.norm_type);
  if (options.error_if_nonfinite && !std::isfinite(norm.item<double>())) {
    throw Error(ErrorCode::kFailedPrecondition,
                "clip_grad: the gradients' norm is {}: they cannot be clipped; skip the step, or look for the first "
                "operation that gives a NaN",
                norm.item<double>());
  }
  scale(lists, options.max_norm, norm);
  return norm;
}

void clip_grad_value(const NamedTensors& parameters, double max_value) {
  const at::NoGradGuard no_grad;
  check_are_means(parameters);
  if (!(max_value >= 0)) {
    throw Error(ErrorCode::kInvalidArgument, "clip_grad: max_value {} must not be negative", max_value);
  }
  for (const auto& list : lists_of(parameters, Listed::kGradients)) {
    at::_foreach_clamp_min_(list, -max_value);
    at::_foreach_clamp_max_(list, max_value);
  }
}

}  // namespace yoke::train
