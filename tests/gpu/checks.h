// tests/gpu/checks.h -- what scripts/gpu-check does with libtorch on a GPU. Each check prints one line of JSON, and
// throws where something is not as it should be.
#pragma once

#include <c10/core/Device.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace yoke::gpu_check {

using Json = nlohmann::ordered_json;

/// Errors  kInternal with `what` unless `is_right`.
void expect(bool is_right, const std::string& what);

Json facts();        ///< The plug, its devices, and which one a World takes.
Json collectives();  ///< Every collective, on the World's device.
Json two_ranks();    ///< Gradients of a rank's half of a batch, averaged on the CPU: those of the whole batch.
Json sharded();      ///< A FullyShardedDataParallel trains as the model alone does.

Json loader(c10::Device device);        ///< A GPU's batches are the CPU's, used on a side stream too.
Json trajectories(c10::Device device);  ///< Losses and weights of each optimizer, for peer.py's beside them.
Json scaled(c10::Device device);        ///< The same in float16 with a GradScaler and overflows.
Json checkpoint(c10::Device device, const std::string& folder);  ///< Saved there and read on the CPU, and back.
Json steps(c10::Device device, const std::string& model, int64_t num_steps);  ///< Milliseconds of a training step.
Json burn(c10::Device device, double seconds);  ///< Keeps the device busy, for monitors to see.

}  // namespace yoke::gpu_check
