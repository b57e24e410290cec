// fakes/nvml/state_defaults.h -- the fields that a state file may have, and their default values.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>

namespace yoke::fake_nvml {

constexpr size_t kMaxDevices = 256;

/// Each returns an object that contains every known field. Within an empty object, any name is allowed.
const nlohmann::json& known_root();
const nlohmann::json& known_device();
const nlohmann::json& known_instance();
const nlohmann::json& known_process();

/// Returns an idle A100 at position `index`, with its own names, numbers and bus id.
nlohmann::json default_device(size_t index);

/// Adds the fields of the MIG instances of `device` that follow from their profiles, such as "3g.40gb".
void complete_instances(nlohmann::json& device);

}  // namespace yoke::fake_nvml
