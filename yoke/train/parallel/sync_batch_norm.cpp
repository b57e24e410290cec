#include "yoke/train/parallel/sync_batch_norm.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/batch_norm_backward_elemt.h>
#include <ATen/ops/batch_norm_backward_reduce.h>
#include <ATen/ops/batch_norm_elemt.h>
#include <ATen/ops/batch_norm_gather_stats_with_counts.h>
#include <ATen/ops/batch_norm_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/dist/group.h"

namespace yoke::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Statistics of the whole batch, each [channels] in float or double.
struct Statistics {
  at::Tensor mean;
  at::Tensor spread;  ///< 1 / sqrt(var + eps) for the CUDA kernels; the biased variance for the CPU kernels.
  at::Tensor counts;  ///< The number of values per channel: [ranks that have values] on CUDA, one element on the CPU.
};

struct Running {
  at::Tensor mean, var;  ///< Running statistics; undefined if not tracked.
  double momentum;
};

std::vector<int64_t> all_but_channels(const at::Tensor& input) {
  std::vector<int64_t> dims = {0};
  for (int64_t dim = 2; dim < input.dim(); ++dim) dims.push_back(dim);
  return dims;
}

/// Reshapes values [channels] so that they broadcast to [batch, channels, ...].
at::Tensor per_channel(const at::Tensor& values, const at::Tensor& input) {
  std::vector<int64_t> shape(static_cast<size_t>(input.dim()), 1);
  shape[1] = -1;
  return values.reshape(shape);
}

c10::ScalarType statistics_type(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

void refuse_without_variance(double num_values) {
  if (num_values > 1) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      "SyncBatchNorm: the batch of all ranks together has {} per channel, and so no variance; use larger batches",
      num_values == 1 ? "one value" : "no value");
}

/// Collective. Gathers a row [mean, spread, count] from every rank. A rank without values contributes zeros.
at::Tensor gather(dist::Group& group, const at::Tensor& mean, const at::Tensor& spread, int64_t count) {
  return group.all_gather(at::cat({mean, spread, at::full({1}, count, mean.options())}));  // [ranks, 2 * channels + 1]
}

Statistics share_on_cpu(dist::Group& group, const at::Tensor& input, const Running& running) {
  const int64_t channels = input.size(1);
  const auto options = input.options().dtype(statistics_type(input));
  auto var = at::zeros({channels}, options), mean = var.clone();
  if (input.numel() > 0) {
    std::tie(var, mean) = at::var_mean(input.to(options), all_but_channels(input), /*correction=*/0);
  }
  const auto all = gather(group, mean, var, input.numel() / channels);
  const auto means = all.narrow(1, 0, channels), vars = all.narrow(1, channels, channels);  // [ranks, channels]
  const auto counts = all.narrow(1, 2 * channels, 1);                                       // [ranks, 1]
  // Adds the variances within ranks and between ranks. Unlike sum(x^2) - sum(x)^2, this squares only small numbers.
  const auto count = counts.sum();
  const double num_values = count.item<double>();
  refuse_without_variance(num_values);
  Statistics whole{(means * counts).sum(0) / count, {}, count};
  whole.spread = ((vars + (means - whole.mean).square()) * counts).sum(0) / count;
  if (running.mean.defined()) {
    running.mean.mul_(1 - running.momentum).add_(whole.mean, running.momentum);
    running.var.mul_(1 - running.momentum).add_(whole.spread, running.momentum * num_values / (num_values - 1));
  }
  return whole;
}

Statistics share_on_device(dist::Group& group, const at::Tensor& input, const Running& running, double eps) {
  const int64_t channels = input.size(1);
  const auto options = input.options().dtype(statistics_type(input));
  auto mean = at::zeros({channels}, options), invstd = mean.clone();
  if (input.numel() > 0) std::tie(mean, invstd) = at::batch_norm_stats(input, eps);
  const auto all = gather(group, mean, invstd, input.numel() / channels);
  const auto with_values = all.select(1, 2 * channels).ge(1).nonzero().squeeze(1);  // without empty ranks
  const auto rows = all.index_select(0, with_values);
  const auto counts = rows.select(1, 2 * channels).contiguous();
  if (counts.numel() < 2) refuse_without_variance(counts.sum().item<double>());
  auto [whole_mean, whole_invstd] = at::batch_norm_gather_stats_with_counts(
      input, rows.narrow(1, 0, channels).contiguous(), rows.narrow(1, channels, channels).contiguous(), running.mean,
      running.var, running.momentum, eps, running.mean.defined() ? counts.to(running.mean.scalar_type()) : counts);
  return {whole_mean, whole_invstd, counts.to(at::kInt)};
}

at::Tensor contiguous_in_its_layout(const at::Tensor& tensor) {
  const bool is_channels_last =
      tensor.is_contiguous(at::MemoryFormat::ChannelsLast) || tensor.is_contiguous(at::MemoryFormat::ChannelsLast3d);
  return is_channels_last ? tensor : tensor.contiguous();
}

/// The sums over this rank's output gradient that backward needs.
struct Sums {
  at::Tensor dy, dy_xmu;    ///< [channels]: sums of dy and of dy * (x - mean).
  at::Tensor weight, bias;  ///< Gradients of this rank; DistributedDataParallel averages them.
};

class SyncBatchNormFunction : public torch::autograd::Function<SyncBatchNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input_in,
                            const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
                            const Running& running, double eps, dist::Group* group) {
    const auto input = contiguous_in_its_layout(input_in);
    const bool is_cpu = input.is_cpu();
    const auto whole = is_cpu ? share_on_cpu(*group, input, running) : share_on_device(*group, input, running, eps);
    context->save_for_backward({input, weight.value_or(at::Tensor()), whole.mean, whole.spread, whole.counts});
    context->saved_data["eps"] = eps;
    context->saved_data["group"] = reinterpret_cast<int64_t>(group);
    if (input.numel() == 0) return at::empty_like(input);
    if (!is_cpu) return at::batch_norm_elemt(input, weight, bias, whole.mean, whole.spread, eps);
    // Normalises as in evaluation, but uses the statistics of the whole batch, and computes in their precision.
    const auto raised = [&](const std::optional<at::Tensor>& values) {
      return values ? std::optional(values->to(whole.mean.scalar_type())) : values;
    };
    return std::get<0>(at::native_batch_norm(input, raised(weight), raised(bias), whole.mean, whole.spread,
                                             /*training=*/false, 0, eps));
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    if (c10::GradMode::is_enabled()) {  // with create_graph, the graph would lack the sum over ranks
      throw Error(ErrorCode::kFailedPrecondition, "SyncBatchNorm gives no gradients of gradients");
    }
    const auto saved = context->get_saved_variables();
    const auto &input = saved[0], &mean = saved[2], &spread = saved[3], &counts = saved[4];
    const bool is_cpu = input.is_cpu(), is_empty = input.numel() == 0;
    const auto weight = is_cpu && saved[1].defined() ? saved[1].to(mean.scalar_type()) : saved[1];
    const double eps = context->saved_data["eps"].toDouble();
    auto& group = *reinterpret_cast<dist::Group*>(context->saved_data["group"].toInt());
    const bool input_wants = context->needs_input_grad(0);
    const auto output = contiguous_in_its_layout(outputs[0]);

    Sums sums;
    at::Tensor grad_input;
    if (is_empty) {
      sums.dy = at::zeros_like(mean);
      sums.dy_xmu = at::zeros_like(mean);
      grad_input = at::zeros_like(input);
    } else if (is_cpu) {
      std::tie(grad_input, sums.weight, sums.bias) = at::native_batch_norm_backward(
          output, input, weight, mean, spread, {}, {}, /*train=*/false, eps, {true, true, true});
      sums.dy = sums.bias.to(mean.scalar_type());
      sums.dy_xmu = sums.weight.to(mean.scalar_type()) * (spread + eps).sqrt();
    } else {
      std::tie(sums.dy, sums.dy_xmu, sums.weight, sums.bias) =
          at::batch_norm_backward_reduce(output, input, mean, spread, weight, input_wants, true, true);
    }

    if (input_wants) {
      const auto both = at::cat({sums.dy, sums.dy_xmu});
      group.all_reduce(both);
      sums.dy = both.narrow(0, 0, mean.numel());
      sums.dy_xmu = both.narrow(0, mean.numel(), mean.numel());
      if (is_cpu && !is_empty) {
        // grad_input treats the statistics as constants, but they depend on the input.
        const auto invstd = (spread + eps).rsqrt();
        const auto scale = (weight.defined() ? weight * invstd : invstd) / counts;
        const auto slope = scale * invstd.square() * sums.dy_xmu, offset = scale * sums.dy;
        grad_input.sub_(
            (input - per_channel(mean, input)).mul_(per_channel(slope, input)).add_(per_channel(offset, input)));
      } else if (!is_empty) {
        grad_input = at::batch_norm_backward_elemt(output, input, mean, spread,
                                                   weight.defined() ? weight.to(mean.scalar_type()) : weight, sums.dy,
                                                   sums.dy_xmu, counts);
      }
    }
    if (is_empty && weight.defined()) sums.weight = sums.bias = at::zeros_like(weight);
    const bool is_affine = weight.defined();
    return {input_wants ? grad_input : at::Tensor(),
            is_affine ? sums.weight : at::Tensor(),
            is_affine ? sums.bias : at::Tensor(),
            {},
            {},
            {}};
  }
};

template <class... Norms>
struct NormTypes {};
using BatchNorms = NormTypes<torch::nn::BatchNorm1dImpl, torch::nn::BatchNorm2dImpl, torch::nn::BatchNorm3dImpl>;

/// Returns a SyncBatchNorm to replace `module`; null if `module` is not a BatchNorm.
template <class... Norms>
std::shared_ptr<SyncBatchNormImpl> continuation(const torch::nn::Module& module, NormTypes<Norms...>) {
  std::shared_ptr<SyncBatchNormImpl> result;
  const auto try_one = [&](const auto* norm) {
    if (norm == nullptr) return;
    result = std::make_shared<SyncBatchNormImpl>(norm->options);
    result->take_over(*norm);
  };
  (try_one(dynamic_cast<const Norms*>(&module)), ...);
  return result;
}

template <class... Norms>
bool is_batch_norm(const torch::nn::Module& module, NormTypes<Norms...>) {
  return ((dynamic_cast<const Norms*>(&module) != nullptr) || ...);
}

/// Collects the names of BatchNorms below `module` that are not in a Sequential.
void find_unreachable(const torch::nn::Module& module, const std::string& prefix, std::vector<std::string>& names) {
  const bool is_sequential = dynamic_cast<const torch::nn::SequentialImpl*>(&module) != nullptr;
  for (const auto& child : module.named_children()) {
    const auto name = prefix + child.key();
    if (!is_sequential && is_batch_norm(*child.value(), BatchNorms())) names.push_back(name);
    find_unreachable(*child.value(), name + ".", names);
  }
}

int64_t convert(torch::nn::Module& module, dist::Group& group) {
  int64_t count = 0;
  if (auto* norm = dynamic_cast<SyncBatchNormImpl*>(&module)) {
    norm->synchronize(group);
    ++count;
  }
  if (auto* sequential = dynamic_cast<torch::nn::SequentialImpl*>(&module)) {
    const auto children = sequential->named_children();
    auto any = sequential->begin();
    for (const auto& child : children) {
      if (auto norm = continuation(*child.value(), BatchNorms())) {
        *any = torch::nn::AnyModule(norm);
        sequential->replace_module(child.key(), norm);
      }
      ++any;
    }
  }
  for (const auto& child : module.children()) count += convert(*child, group);
  return count;
}

}  // namespace

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  _check_input_dim(input);
  const bool is_tracked = options.track_running_stats(), is_update = is_training() && is_tracked;
  double momentum = options.momentum().value_or(0);
  if (is_update && !options.momentum()) momentum = 1 / (num_batches_tracked.item<double>() + 1);  // mean of all batches
  at::Tensor output;
  if (!is_training() || group_ == nullptr || group_->size() == 1) {
    const bool is_of_batch = is_training() || !is_tracked;
    if (is_of_batch && input.numel() > 0) refuse_without_variance(static_cast<double>(input.numel() / input.size(1)));
    output = at::batch_norm(input, weight, bias, running_mean, running_var, is_of_batch, momentum, options.eps(),
                            /*cudnn_enabled=*/true);
  } else {
    const Running running{is_tracked ? running_mean : at::Tensor(), is_tracked ? running_var : at::Tensor(), momentum};
    using Optional = std::optional<at::Tensor>;  // a torch::autograd::Function does not accept undefined tensors
    output =
        SyncBatchNormFunction::apply(input, weight.defined() ? Optional(weight) : std::nullopt,
                                     bias.defined() ? Optional(bias) : std::nullopt, running, options.eps(), group_);
  }
  if (is_update) num_batches_tracked.add_(1);  // after the checks, so that a refused batch does not count
  return output;
}

void SyncBatchNormImpl::_check_input_dim(const at::Tensor& input) {
  if (input.dim() >= 2 && input.dim() <= 5 && input.size(1) == options.num_features()) return;
  throw Error(ErrorCode::kInvalidArgument, "SyncBatchNorm of {} channels was given an input of shape [{}]",
              options.num_features(), fmt::join(input.sizes(), ", "));
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("yoke::train::SyncBatchNorm({}, eps={}, momentum={}, affine={}, track_running_stats={})",
                        options.num_features(), options.eps(),
                        options.momentum() ? fmt::to_string(*options.momentum()) : "None", options.affine(),
                        options.track_running_stats());
}

void SyncBatchNormImpl::take_over(const torch::nn::Module& norm, const at::Tensor& new_weight,
                                  const at::Tensor& new_bias, const at::Tensor& mean, const at::Tensor& var,
                                  const at::Tensor& num_batches) {
  parameters_["weight"] = weight = new_weight;
  parameters_["bias"] = bias = new_bias;
  if (mean.defined()) {  // sharing memory is enough for buffers, because optimizers do not refer to them
    running_mean.set_data(mean);
    running_var.set_data(var);
    num_batches_tracked.set_data(num_batches);
  }
  train(norm.is_training());
}

int64_t convert_sync_batch_norm(torch::nn::Module& model, dist::Group& group) {
  std::vector<std::string> names;
  if (is_batch_norm(model, BatchNorms())) names.emplace_back("the model itself");
  find_unreachable(model, "", names);
  if (!names.empty()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "cannot make SyncBatchNorm of these BatchNorms, which are not in a Sequential: {}; declare them as "
                "yoke::train::SyncBatchNorm in the module that holds them",
                fmt::join(names, ", "));
  }
  return convert(model, group);
}

bool has_sync_batch_norm(const torch::nn::Module& model) {
  const auto* norm = dynamic_cast<const SyncBatchNormImpl*>(&model);
  if (norm != nullptr && norm->is_synchronized()) return true;
  const auto children = model.children();
  return std::any_of(children.begin(), children.end(), [](const auto& child) { return has_sync_batch_norm(*child); });
}

}  // namespace yoke::train
