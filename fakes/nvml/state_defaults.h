// fakes/nvml/state_defaults.h -- the fields that a state file may have, and what they are when it leaves them out.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>

namespace yoke::fake_nvml {

constexpr size_t kMaxDevices = 256;

/// Objects that hold every field that there is; an empty object allows any name.
const nlohmann::json& known_root();
const nlohmann::json& known_device();
const nlohmann::json& known_instance();
const nlohmann::json& known_process();

/// An idle A100 at the place `index`, with names, numbers and bus id of its own.
nlohmann::json default_device(size_t index);

/// Gives the MIG instances of `device` what follows from their profile, as "3g.40gb".
void complete_instances(nlohmann::json& device);

}  // namespace yoke::fake_nvml
