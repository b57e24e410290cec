// yoke/scaling/memory.h -- the memory of a rank: parameters, gradients, state of the optimizer, buffers. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "yoke/scaling/model.h"

namespace yoke::scaling {

enum class Optimizer { kAdam, kMomentum, kSgd };
std::optional<Optimizer> parse_optimizer(std::string_view name);
std::string_view name(Optimizer optimizer);

/// The type of parameters and gradients.
enum class Precision {
  kFloat32,  ///< All in float32. Autocast belongs here, because it keeps parameters and gradients in float32.
  kMixed,    ///< Parameters and gradients of 16 bits, and a float32 copy of the parameters in the optimizer.
};

struct MemoryOptions {
  int64_t num_parameters = 0;
  Precision precision = Precision::kFloat32;
  Optimizer optimizer = Optimizer::kAdam;
  double gathered_share = 1;  ///< FSDP: the share of the parameters that are gathered at a time; see gathered_share().
  int64_t other_bytes = 0;    ///< Activations and all else, which is the same on each rank of a job of equal batches.
};

struct Memory {
  double parameter_bytes = 0, gradient_bytes = 0, state_bytes = 0;
  double buffer_bytes = 0;  ///< DDP's buckets; FSDP's gathered units with their gradients.
  double other_bytes = 0;
  int64_t total() const;
};

/// Bytes of a gradient of one parameter, as it is sent.
int64_t bytes_per_gradient(Precision precision);

/// Source  Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020,
/// sec. 3.1 and 5: 2 + 2 + 12 bytes per parameter in mixed precision with Adam. DDP's buckets hold a second copy of all
/// gradients, if gradients are not views of them (PyTorch's gradient_as_bucket_view).
Memory memory_of(Strategy strategy, int64_t num_devices, const MemoryOptions& options);

}  // namespace yoke::scaling
