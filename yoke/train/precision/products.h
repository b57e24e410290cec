// yoke/train/precision/products.h -- observes which matrix products, convolutions and attentions a piece of code
// computes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace yoke::train::precision {

/// One operation with the arguments of its kernel. Under Autocast, the arguments are those after the casts.
struct Product {
  enum class Kind : uint8_t {
    kMatmul,       ///< input [..., rows, inner] x weight [..., inner, columns]
    kConvolution,  ///< input [batch, channels, ...], weight [out channels, channels / groups, ...]
    kAttention,    ///< input (the query) [..., length, features], weight (the key) of the same rank
  };
  Kind kind = Kind::kMatmul;
  std::string layer;  ///< Dotted name of the module whose parameter the product uses; "bmm 1" if it uses no parameter.
  std::string operation;  ///< The outermost operation: "conv2d"; for libtorch's Linear "addmm" or "matmul".
  bool uses_parameter = false;
  int64_t calls = 1;
  c10::Device device = c10::Device(c10::kCPU);
  c10::ScalarType dtype = c10::kFloat;
  std::vector<int64_t> input, weight;
  bool input_needs_grad = false, weight_needs_grad = false;

  bool weight_is_transposed = false;  ///< kMatmul: its memory is [..., columns, inner], as in a linear layer.
  c10::MemoryFormat format = c10::MemoryFormat::Contiguous;  ///< this member and the next: only for kConvolution
  std::vector<int64_t> stride, padding, dilation, output_padding;
  bool is_transposed = false;
  int64_t groups = 1;
  bool is_causal = false;     ///< this member and the next: only for kAttention
  bool shares_heads = false;  ///< enable_gqa: the key has fewer heads than the query.
};

/// Runs `body` and returns the products that this thread computed in it, in the order of their first calls. Equal calls
/// of a layer are combined. Layers are recognised by the memory of their parameters, even after Autocast has copied a
/// parameter. Fused recurrent layers (cuDNN's, oneDNN's) and torch's fused transformer layers for inference are not
/// observed.
std::vector<Product> observe(const torch::nn::Module& model, const std::function<void()>& body);

}  // namespace yoke::train::precision
