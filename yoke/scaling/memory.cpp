#include "yoke/scaling/memory.h"

#include <cmath>

namespace yoke::scaling {

std::string_view name(Optimizer optimizer) {
  return optimizer == Optimizer::kAdam ? "adam" : optimizer == Optimizer::kMomentum ? "momentum" : "sgd";
}

std::optional<Optimizer> parse_optimizer(std::string_view name_of_it) {
  for (const auto optimizer : {Optimizer::kAdam, Optimizer::kMomentum, Optimizer::kSgd}) {
    if (name(optimizer) == name_of_it) return optimizer;
  }
  return std::nullopt;
}

int64_t Memory::total() const {
  return std::llround(parameter_bytes + gradient_bytes + state_bytes + buffer_bytes + other_bytes);
}

int64_t bytes_per_gradient(Precision precision) { return precision == Precision::kMixed ? 2 : 4; }

Memory memory_of(Strategy strategy, int64_t num_devices, const MemoryOptions& options) {
  const auto count = static_cast<double>(options.num_parameters);
  const auto n = static_cast<double>(num_devices);
  const auto width = static_cast<double>(bytes_per_gradient(options.precision));
  const double moments = options.optimizer == Optimizer::kAdam ? 8 : options.optimizer == Optimizer::kMomentum ? 4 : 0;
  const double state = (moments + (options.precision == Precision::kMixed ? 4 : 0)) * count;
  Memory memory{.parameter_bytes = width * count,
                .gradient_bytes = width * count,
                .state_bytes = state,
                .other_bytes = static_cast<double>(options.other_bytes)};
  if (num_devices == 1) return memory;
  if (strategy == Strategy::kFsdp) {
    memory.buffer_bytes = 2 * options.gathered_share * width * count;
    memory.parameter_bytes /= n;
    memory.gradient_bytes /= n;
    memory.state_bytes /= n;
    return memory;
  }
  memory.buffer_bytes = width * count;
  if (strategy == Strategy::kZero1) memory.state_bytes /= n;
  return memory;
}

}  // namespace yoke::scaling
