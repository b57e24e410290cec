#include "yoke/train/precision/advise.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/base/table.h"
#include "yoke/train/device/detail/keep_generators.h"
#include "yoke/train/device/devices.h"
#include "yoke/train/precision/autocast.h"

namespace yoke::train::precision {
namespace {

using Kind = Product::Kind;
using Sizes = std::vector<int64_t>;

int64_t round_up(int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

/// One size of a product: its name, and its positions in both shapes.
struct Size {
  std::string name;
  int64_t value = 0;
  std::vector<std::pair<Sizes*, size_t>> places;
  int64_t times = 1;  ///< A position holds value * times: `value` is for one group, the shape for all groups.
};

std::vector<Size> sizes_of(const Product& product, Sizes& input, Sizes& weight) {
  const size_t last = input.size() - 1;
  const bool is_layer = product.uses_parameter;
  switch (product.kind) {
    case Kind::kMatmul: {
      const auto rows = product.input[last - 1];
      std::vector<Size> sizes{
          {is_layer ? "input features" : "inner size", input[last], {{&input, last}, {&weight, last - 1}}},
          {is_layer ? "output features" : "columns", weight[last], {{&weight, last}}}};
      // In forward, the number of rows does not affect memory alignment. In backward it does, because the weight's
      // gradient sums over the rows.
      if (product.weight_needs_grad) {
        sizes.push_back({is_layer ? "rows (the batch)" : "rows", rows, {{&input, last - 1}}});
      }
      return sizes;
    }
    case Kind::kConvolution: {
      const auto in = product.input[1] / product.groups;
      if (product.is_transposed) {
        return {{"input channels", in, {{&input, 1}, {&weight, 0}}, product.groups},
                {"output channels", weight[1], {{&weight, 1}}}};
      }
      // The weight's second size is the number of channels in one group.
      return {{"input channels", in, {{&input, 1}}, product.groups},
              {"input channels", in, {{&weight, 1}}},
              {"output channels", weight[0] / product.groups, {{&weight, 0}}, product.groups}};
    }
    case Kind::kAttention: return {{"features of a head", input[last], {{&input, last}, {&weight, last}}}};
  }
  return {};
}

at::Tensor random(const Sizes& sizes, const Product& product, const at::Generator& generator, bool needs_grad) {
  auto tensor = at::randn(sizes, generator, at::dtype(at::kFloat)).to(product.device, product.dtype);
  if (product.kind == Kind::kConvolution && product.format != at::MemoryFormat::Contiguous) {
    tensor = tensor.contiguous(product.format);
  }
  return tensor.requires_grad_(needs_grad);
}

/// Returns a function that runs only the product, on its own tensors.
std::function<void()> alone(const Product& product, const Sizes& input_sizes, const Sizes& weight_sizes,
                            const at::Generator& generator) {
  const auto input = random(input_sizes, product, generator, product.input_needs_grad);
  at::Tensor weight;
  if (product.kind == Kind::kMatmul && product.weight_is_transposed) {
    auto stored = weight_sizes;
    std::swap(stored[stored.size() - 1], stored[stored.size() - 2]);
    weight = random(stored, product, generator, product.weight_needs_grad).transpose(-1, -2);
  } else {
    weight = random(weight_sizes, product, generator, product.weight_needs_grad);
  }
  auto forward = [product, input, weight]() -> at::Tensor {
    switch (product.kind) {
      case Kind::kConvolution:
        return at::convolution(input, weight, {}, product.stride, product.padding, product.dilation,
                               product.is_transposed, product.output_padding, product.groups);
      case Kind::kAttention:
        return at::scaled_dot_product_attention(input, weight, weight, {}, 0.0, product.is_causal, {},
                                                product.shares_heads);
      case Kind::kMatmul: break;
    }
    return at::matmul(input, weight);
  };
  if (!input.requires_grad() && !weight.requires_grad()) {
    return [forward] {
      const at::NoGradGuard no_grad;
      forward();
    };
  }
  at::Tensor gradient;
  {
    const at::NoGradGuard no_grad;
    gradient = at::ones_like(forward());
  }
  return [forward, gradient] { forward().backward(gradient); };
}

double seconds_of(const std::function<void()>& work, c10::Device device) {
  const auto wait = [device] {
    if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  };
  wait();
  const auto start = std::chrono::steady_clock::now();
  work();
  wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Returns medians in milliseconds. The functions run in turns, so that other load on the machine affects all of them
/// equally.
std::vector<double> measure(const std::vector<std::function<void()>>& works, c10::Device device, int64_t repetitions) {
  std::vector<std::vector<double>> seconds(works.size());
  for (int64_t i = -2; i < repetitions; ++i) {  // two rounds of warm-up
    for (size_t k = 0; k < works.size(); ++k) {
      const auto taken = seconds_of(works[k], device);
      if (i >= 0) seconds[k].push_back(taken);
    }
  }
  std::vector<double> medians;
  for (auto& one : seconds) {
    const auto middle = one.begin() + static_cast<std::ptrdiff_t>(one.size() / 2);
    std::nth_element(one.begin(), middle, one.end());
    medians.push_back(*middle * 1000);
  }
  return medians;
}

/// Restores gradients, buffers and generators.
class KeepModel {
 public:
  KeepModel(torch::nn::Module& model, c10::Device device)
      : generators_({device}), parameters_(model.parameters()), buffers_(model.buffers()) {
    for (auto& parameter : parameters_) {
      gradients_.push_back(parameter.grad());
      parameter.mutable_grad() = at::Tensor();
    }
    for (const auto& buffer : buffers_) values_.push_back(buffer.detach().clone());
  }
  ~KeepModel() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = gradients_[i];
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(values_[i]);
  }
  KeepModel(const KeepModel&) = delete;
  KeepModel& operator=(const KeepModel&) = delete;

 private:
  KeepGenerators generators_;
  std::vector<at::Tensor> parameters_, buffers_, gradients_, values_;
};

std::string hardware_of(c10::Device device, c10::ScalarType dtype) {
  if (device.is_cpu()) {
    return has_fast_bfloat16(device) ? "no tensor cores; the CPU multiplies bfloat16 in hardware (AMX or AVX512-BF16)"
                                     : "no tensor cores, and no bfloat16 in hardware: lower precision is emulated here";
  }
  if (dtype == at::kBFloat16 && !has_fast_bfloat16(device)) return "no tensor cores for bfloat16: use float16 here";
  return "tensor cores";
}

/// Returns the number that should divide the product's sizes; 0 if this device has no matrix unit for the product. On a
/// CPU, the rule for GPUs is used.
int64_t multiple_on(const Product& product) {
  const auto& context = at::globalContext();
  const bool allows_tf32 = product.kind == Kind::kConvolution ? context.allowTF32CuDNN() : context.allowTF32CuBLAS();
  if (product.dtype == at::kBFloat16 && !product.device.is_cpu() && !has_fast_bfloat16(product.device)) return 0;
  return tensor_core_multiple(product.dtype, allows_tf32);
}

}  // namespace

int64_t tensor_core_multiple(c10::ScalarType dtype, bool allows_tf32) {
  switch (dtype) {
    case at::kHalf:
    case at::kBFloat16: return 8;
    case at::kFloat: return allows_tf32 ? 4 : 0;
    case at::kChar: return 16;
    default: return 0;
  }
}

void judge(LayerAdvice& advice, int64_t multiple) {
  const auto& product = advice.product;
  advice.fits = false;
  advice.padded_input.clear();
  advice.padded_weight.clear();
  if (multiple == 0) {
    advice.reason = fmt::format("computed in {}{}", c10::toString(product.dtype),
                                product.dtype == at::kFloat      ? ": outside Autocast, and TF32 is not allowed"
                                : product.dtype == at::kBFloat16 ? ", which needs compute capability 8.0: use float16"
                                                                 : "");
    return;
  }
  auto input = product.input, weight = product.weight;
  if (product.kind == Kind::kConvolution && product.groups > 1 && product.groups == input[1]) {
    advice.reason = "depthwise: one channel in a group, and padding adds only zeros to multiply";
    return;
  }
  std::vector<std::string> misses;
  for (const auto& size : sizes_of(product, input, weight)) {
    if (size.value % multiple == 0) continue;
    const auto miss = fmt::format("{} {}", size.value, size.name);
    if (misses.empty() || misses.back() != miss) misses.push_back(miss);
    for (const auto& [shape, place] : size.places) (*shape)[place] = round_up(size.value, multiple) * size.times;
  }
  advice.fits = misses.empty();
  advice.reason.clear();
  if (advice.fits) return;
  advice.reason = fmt::format("{}: not {} of {}", fmt::join(misses, ", "),
                              misses.size() > 1 ? "multiples" : "a multiple", multiple);
  advice.padded_input = std::move(input);
  advice.padded_weight = std::move(weight);
}

Advice advise(torch::nn::Module& model, const std::function<at::Tensor()>& forward, const AdviseOptions& options) {
  if (options.repetitions < 1) {
    throw Error(ErrorCode::kInvalidArgument, "advise: {} repetitions; there must be one", options.repetitions);
  }
  Advice advice;
  advice.device = device_of(model).value_or(c10::Device(c10::kCPU));
  advice.dtype = options.dtype;
  advice.hardware = hardware_of(advice.device, options.dtype);
  const KeepModel keep(model, advice.device);

  const auto run_forward = [&] {
    std::optional<Autocast> autocast;
    if (options.dtype != at::kFloat) {
      autocast.emplace(AutocastOptions{.device_type = advice.device.type(), .dtype = options.dtype});
    }
    return forward();
  };
  const auto step = [&] {
    const auto output = run_forward();
    advice.has_backward = output.requires_grad();
    if (advice.has_backward) output.backward(at::ones_like(output));
    for (const auto& parameter : model.parameters()) parameter.mutable_grad() = at::Tensor();
  };
  const auto products = observe(model, [&] { run_forward(); });
  advice.step_milliseconds = measure({step}, advice.device, options.repetitions).front();

  const auto generator = at::make_generator<at::CPUGeneratorImpl>();
  for (const auto& product : products) {
    LayerAdvice layer{.product = product};
    judge(layer, multiple_on(product));
    std::vector<std::function<void()>> works{alone(product, product.input, product.weight, generator)};
    if (!layer.padded_input.empty()) {
      works.push_back(alone(product, layer.padded_input, layer.padded_weight, generator));
    }
    const auto milliseconds = measure(works, product.device, options.repetitions);
    layer.milliseconds = milliseconds[0];
    if (milliseconds.size() > 1) layer.padded_milliseconds = milliseconds[1];
    layer.share = layer.milliseconds * static_cast<double>(product.calls) / advice.step_milliseconds;
    advice.layers.push_back(std::move(layer));
  }
  return advice;
}

std::string to_text(const Advice& advice) {
  auto text = fmt::format("{} ({}), {}: {}\n{} takes {:.3f} ms\n\n", advice.device.str(), device_name(advice.device),
                          c10::toString(advice.dtype), advice.hardware,
                          advice.has_backward ? "forward and backward" : "forward", advice.step_milliseconds);
  Table table{.columns = {{"layer"},
                          {"operation"},
                          {"shapes"},
                          {"calls", Align::kRight},
                          {"ms", Align::kRight},
                          {"share", Align::kRight},
                          {"fits"},
                          {"padded"},
                          {"then ms", Align::kRight}}};
  std::vector<const LayerAdvice*> layers;
  for (const auto& layer : advice.layers) layers.push_back(&layer);
  std::stable_sort(layers.begin(), layers.end(), [](const auto* a, const auto* b) { return a->share > b->share; });
  const auto shapes = [](const Sizes& input, const Sizes& weight) {
    return fmt::format("[{}] x [{}]", fmt::join(input, ", "), fmt::join(weight, ", "));
  };
  for (const auto* layer : layers) {
    const bool is_padded = !layer->padded_input.empty();
    table.rows.push_back({layer->product.layer, layer->product.operation,
                          shapes(layer->product.input, layer->product.weight), std::to_string(layer->product.calls),
                          fmt::format("{:.3f}", layer->milliseconds), fmt::format("{:.0f}%", layer->share * 100),
                          layer->fits ? "yes" : layer->reason,
                          is_padded ? shapes(layer->padded_input, layer->padded_weight) : "",
                          is_padded ? fmt::format("{:.3f}", layer->padded_milliseconds) : ""});
  }
  return text + yoke::to_text(table, kUnlimitedWidth);
}

}  // namespace yoke::train::precision
