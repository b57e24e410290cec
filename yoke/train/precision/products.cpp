#include "yoke/train/precision/products.h"

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

namespace yoke::train::precision {
namespace {

using Kind = Product::Kind;

// Operators that begin a product. If one of these operators calls another one of them, both belong to the outer
// operator's product.
constexpr std::string_view kOuter[] = {
    "aten::linear",
    "aten::conv1d",
    "aten::conv2d",
    "aten::conv3d",
    "aten::conv_transpose1d",
    "aten::conv_transpose2d",
    "aten::conv_transpose3d",
    "aten::convolution",
    "aten::matmul",
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::scaled_dot_product_attention",
};

bool is_watched(std::string_view name) {
  return std::find(std::begin(kOuter), std::end(kOuter), name) != std::end(kOuter);
}

/// The observations of one thread. RecordFunction's callbacks are plain functions and find this object through a
/// thread-local pointer.
struct Observer {
  std::map<const void*, std::string> layers;  ///< Name of the layer, by the address of its parameter's memory.
  std::vector<Product> products;
  std::optional<Product> current;
  bool has_kernel = false;
  int64_t depth = 0;
};
thread_local Observer* observer = nullptr;

const void* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

bool is_transposed(const at::Tensor& matrix) {
  const auto dim = matrix.dim();
  return matrix.stride(dim - 2) == 1 && matrix.size(dim - 2) > 1 && matrix.stride(dim - 1) > 1;
}

void take(Product& product, Kind kind, const at::Tensor& input, const at::Tensor& weight) {
  product.kind = kind;
  product.device = input.device();
  product.dtype = input.scalar_type();
  product.input = input.sizes().vec();
  product.weight = weight.sizes().vec();
  product.input_needs_grad = c10::GradMode::is_enabled() && input.requires_grad();
  product.weight_needs_grad = c10::GradMode::is_enabled() && weight.requires_grad();
}

// Of nested calls of kernel operators, the innermost one computes.
void take_kernel(Product& product, std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  const bool is_known = observer->has_kernel;
  if (name == "aten::convolution") {
    take(product, Kind::kConvolution, inputs[0].toTensor(), inputs[1].toTensor());
    product.format = inputs[0].toTensor().suggest_memory_format();
    product.stride = inputs[3].toIntVector();
    product.padding = inputs[4].toIntVector();
    product.dilation = inputs[5].toIntVector();
    product.is_transposed = inputs[6].toBool();
    product.output_padding = inputs[7].toIntVector();
    product.groups = inputs[8].toInt();
  } else if (name == "aten::scaled_dot_product_attention") {
    take(product, Kind::kAttention, inputs[0].toTensor(), inputs[1].toTensor());
    product.is_causal = inputs[5].toBool();
    product.shares_heads = inputs[7].toBool();
  } else if (is_known && product.kind != Kind::kMatmul) {
    return;  // a product inside a convolution or attention
  } else if (name == "aten::mm" || name == "aten::bmm") {
    take(product, Kind::kMatmul, inputs[0].toTensor(), inputs[1].toTensor());
    product.weight_is_transposed = is_transposed(inputs[1].toTensor());
  } else if (name == "aten::addmm" || name == "aten::baddbmm") {
    take(product, Kind::kMatmul, inputs[1].toTensor(), inputs[2].toTensor());
    product.weight_is_transposed = is_transposed(inputs[2].toTensor());
  } else {
    return;
  }
  observer->has_kernel = true;
}

std::unique_ptr<at::ObserverContext> before(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (observer == nullptr || !is_watched(name)) return nullptr;
  if (observer->depth++ == 0) {
    observer->current.emplace();
    observer->current->operation = name.substr(name.rfind(':') + 1);
    observer->has_kernel = false;
  }
  auto& product = *observer->current;
  if (product.layer.empty()) {
    for (const auto& input : function.inputs()) {
      if (!input.isTensor() || !input.toTensor().defined()) continue;
      const auto found = observer->layers.find(memory_of(input.toTensor()));
      if (found != observer->layers.end() && input.toTensor().dim() > 1) product.layer = found->second;
    }
  }
  take_kernel(product, name, function.inputs());
  return nullptr;
}

void after(const at::RecordFunction& function, at::ObserverContext*) {
  if (observer == nullptr || !is_watched(function.name()) || observer->depth == 0 || --observer->depth != 0) return;
  // A product of vectors and an empty product have no kernel that matrix units could speed up.
  if (observer->has_kernel) observer->products.push_back(std::move(*observer->current));
  observer->current.reset();
}

bool is_same(const Product& a, const Product& b) {
  const auto key = [](const Product& p) {
    return std::tie(p.kind, p.layer, p.operation, p.dtype, p.input, p.weight, p.input_needs_grad, p.weight_needs_grad,
                    p.weight_is_transposed, p.format, p.stride, p.padding, p.dilation, p.output_padding,
                    p.is_transposed, p.groups, p.is_causal, p.shares_heads);
  };
  return a.device == b.device && key(a) == key(b);
}

struct Watching {
  explicit Watching(Observer& mine) : outer(std::exchange(observer, &mine)) {
    handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(before, after).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~Watching() {
    at::removeCallback(handle);
    observer = outer;
  }
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

  Observer* outer;
  at::CallbackHandle handle{};
};

}  // namespace

std::vector<Product> observe(const torch::nn::Module& model, const std::function<void()>& body) {
  Observer mine;
  for (const auto& item : model.named_parameters()) {
    auto name = item.key();
    if (name.ends_with(".weight")) name.resize(name.size() - std::string_view(".weight").size());
    mine.layers.emplace(memory_of(item.value()), std::move(name));
  }
  {
    const Watching watching(mine);
    body();
  }
  std::vector<Product> products;
  std::map<std::string, int64_t> num_nameless;
  for (auto& product : mine.products) {
    const bool is_nameless = product.layer.empty();
    product.uses_parameter = !is_nameless;
    const auto same = std::find_if(products.begin(), products.end(), [&](const Product& other) {
      auto like_other = product;
      if (is_nameless && other.layer.starts_with(product.operation + " ")) like_other.layer = other.layer;
      return is_same(like_other, other);
    });
    if (same != products.end()) {
      ++same->calls;
      continue;
    }
    if (is_nameless) product.layer = product.operation + " " + std::to_string(++num_nameless[product.operation]);
    products.push_back(std::move(product));
  }
  return products;
}

}  // namespace yoke::train::precision
