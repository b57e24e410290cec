// yoke/train/precision/advise.h -- reports which layers use the hardware's matrix units in lower precision, and which
// do not.
//
//     std::cout << to_text(precision::advise(*model, x));  // x: a batch as in training, on the model's device
//
// If a layer does not use the matrix units, the usual reason is a size: a layer with 10 outputs, an image with 3
// channels, a vocabulary of 50257. The report gives the next sizes that fit, and the time of the same operation with
// these sizes, measured on this device.
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
  /// The dtype for Autocast. kFloat measures without Autocast; tensor cores then support only TF32.
  c10::ScalarType dtype = c10::kBFloat16;
  int64_t repetitions = 10;  ///< Repetitions of each measurement; the result is the median.
};

/// One layer, or one product without a parameter (attention scores). Calls with equal shapes are combined.
struct LayerAdvice {
  Product product;                                   ///< Layer, operation, shapes, dtype, number of calls.
  bool fits = false;                                 ///< Tensor cores run these sizes and this dtype at full speed.
  std::string reason;                                ///< Why it does not fit; empty if it does.
  std::vector<int64_t> padded_input, padded_weight;  ///< Shapes that would fit; empty if none would, or if not needed.
  double milliseconds = 0;                           ///< Time of one call: forward and, in training, backward.
  double padded_milliseconds = 0;  ///< Time of one call with the padded shapes; 0 without padded shapes.
  double share = 0;  ///< Share of the step's time that all calls take. An estimate, because calls are measured alone.
};

struct Advice {
  c10::Device device = c10::Device(c10::kCPU);
  c10::ScalarType dtype = c10::kFloat;
  std::string hardware;  ///< "tensor cores", or a text that says that there are none and which units compute instead.
  bool has_backward = false;        ///< The output needed a gradient, so steps include backward.
  double step_milliseconds = 0;     ///< Time of a step, without the optimizer.
  std::vector<LayerAdvice> layers;  ///< In the order in which they run.
};

/// Runs `forward` several times, observes the products that it computes on this thread, and measures each of them.
///
/// Rule     NVIDIA's: every size of a product (rows, inner, columns; channels in and out of a convolution) should be a
///          multiple of 8 for float16 and bfloat16, 4 for TF32, 16 for int8. Since cuBLAS 11 and cuDNN 7.6.3 other
///          sizes use tensor cores too, but below full speed; earlier versions do not. bfloat16 and TF32 need compute
///          capability 8.0. A CPU has no tensor cores, but the same sizes are measured there.
/// Errors   kInvalidArgument: repetitions below 1.
/// Leaves   parameters, gradients, buffers (batch-norm statistics) and generators unchanged.
/// Source   NVIDIA, "Matrix Multiplication Background User's Guide", "Convolutional Layers User's Guide".
Advice advise(torch::nn::Module& model, const std::function<at::Tensor()>& forward, const AdviseOptions& options = {});

/// For a model with `at::Tensor forward(at::Tensor)`.
template <class M>
Advice advise(M& model, const at::Tensor& example, const AdviseOptions& options = {}) {
  return advise(
      model, [&] { return model.forward(example); }, options);
}

/// Returns the number that should divide the sizes of a product in `dtype`; 0 if tensor cores do not support the dtype.
int64_t tensor_core_multiple(c10::ScalarType dtype, bool allows_tf32);

/// Sets `fits`, `reason` and the padded shapes from the product and `multiple`. Uses no device.
void judge(LayerAdvice& advice, int64_t multiple);

/// A table with the most expensive layer first.
std::string to_text(const Advice& advice);

}  // namespace yoke::train::precision
