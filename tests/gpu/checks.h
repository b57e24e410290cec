// tests/gpu/checks.h -- the checks of scripts/gpu-check that use libtorch on a GPU. Each returns figures as JSON, and
// throws if it fails.
#pragma once

#include <c10/core/Device.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace yoke::gpu_check {

using Json = nlohmann::ordered_json;

/// Throws kInternal with the message `what` if `is_right` is false.
void expect(bool is_right, const std::string& what);

Json facts();        ///< Reports the plug, its devices, and the device that a World chooses.
Json collectives();  ///< Runs every collective on the World's device.
Json two_ranks();    ///< Gradients of two half batches, averaged on the CPU, must equal those of the whole batch.
Json sharded();      ///< FullyShardedDataParallel must train to the same values as the model alone.

/// The loader's batches on the GPU must equal those on the CPU, even if they are used on a second stream.
Json loader(c10::Device device);
/// Returns losses and weights of each optimizer, for a comparison with those of peer.py.
Json trajectories(c10::Device device);
Json scaled(c10::Device device);  ///< As trajectories(), but in float16, with a GradScaler and overflows.
/// A checkpoint saved on the GPU must load on the CPU, and the reverse.
Json checkpoint(c10::Device device, const std::string& folder);
/// Measures a training step in milliseconds.
Json steps(c10::Device device, const std::string& model, int64_t num_steps);
/// Recorded steps must give the losses of the steps themselves; times of both.
Json recorded(c10::Device device, const std::string& model, int64_t num_steps);
Json burn(c10::Device device, double seconds);  ///< Keeps the device busy, so that monitors can be compared.

}  // namespace yoke::gpu_check
