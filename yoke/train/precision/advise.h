// yoke/train/precision/advise.h -- which layers use the hardware's matrix units in lower precision, and which miss
// them.
//
//     std::cout << to_text(precision::advise(*model, x));  // x: a batch as in training, on the model's device
//
// A miss is mostly a size: a layer with 10 outputs, an image with 3 channels, a vocabulary of 50257. The report gives
// the next sizes that fit and what they are worth, measured on this device with the same operation.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "yoke/train/precision/products.h"

namespace yoke::train::precision {

struct AdviseOptions {
  /// What Autocast lowers to; kFloat measures without it, where TF32 is what tensor cores can do.
  c10::ScalarType dtype = c10::kBFloat16;
  int64_t repetitions = 10;  ///< Of each measurement; the median counts.
};

/// One layer, or one product without a parameter (attention scores), with calls of equal shapes together.
struct LayerAdvice {
  Product product;     ///< Layer, operation, shapes, dtype, number of calls.
  bool fits = false;   ///< Sizes and dtype are those that tensor cores take at full speed.
  std::string reason;  ///< Why not; empty when it fits.
  std::vector<int64_t> padded_input, padded_weight;  ///< Shapes that would fit; empty when none or not needed.
  double milliseconds = 0;                           ///< Of one call, forward and, in training, backward.
  double padded_milliseconds = 0;                    ///< The same with the padded shapes; 0 without any.
  double share = 0;  ///< Of the step, all calls; these run alone, so shares are estimates.
};

struct Advice {
  c10::Device device = c10::Device(c10::kCPU);
  c10::ScalarType dtype = c10::kFloat;
  std::string hardware;          ///< What multiplies here: "tensor cores", or that there are none and what there is.
  bool has_backward = false;     ///< The output needed a gradient: steps are forward and backward, else forward alone.
  double step_milliseconds = 0;  ///< Without the optimizer.
  std::vector<LayerAdvice> layers;  ///< In the order in which they run.
};

/// Runs `forward` some times, looks at the products that it computes on this thread, and measures each.
///
/// Rule     NVIDIA's: every size of a product (rows, inner, columns; channels in and out of a convolution) a multiple
///          of 8 for float16 and bfloat16, 4 for TF32, 16 for int8. Since cuBLAS 11 and cuDNN 7.6.3 other sizes reach
///          tensor cores too, below full speed; before, they do not. bfloat16 and TF32 need compute capability 8.0. A
///          CPU has no tensor cores; the same sizes are measured there.
/// Errors   kInvalidArgument: repetitions below 1.
/// Leaves   parameters, gradients, buffers (batch-norm statistics) and generators as they were.
/// Source   NVIDIA, "Matrix Multiplication Background User's Guide", "Convolutional Layers User's Guide".
Advice advise(torch::nn::Module& model, const std::function<at::Tensor()>& forward, const AdviseOptions& options = {});

/// For a model with `at::Tensor forward(at::Tensor)`.
template <class M>
Advice advise(M& model, const at::Tensor& example, const AdviseOptions& options = {}) {
  return advise(
      model, [&] { return model.forward(example); }, options);
}

/// The multiple that the sizes of a product in `dtype` should have; 0 when tensor cores do not take it.
int64_t tensor_core_multiple(c10::ScalarType dtype, bool allows_tf32);

/// Sets `fits`, `reason` and the padded shapes from the product and this multiple: no device is asked.
void judge(LayerAdvice& advice, int64_t multiple);

/// A table, the costliest layer first.
std::string to_text(const Advice& advice);

}  // namespace yoke::train::precision
