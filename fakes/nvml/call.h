// fakes/nvml/call.h -- what every function of the fake does first and last.
//
// A call finds the state in force, the device that its handle means, and the errors and delays that the state asks for;
// then its own part runs. Nothing is thrown across the C interface.
#pragma once

#include <memory>
#include <string>

#include "nvml_abi.h"
#include "state.h"

namespace yoke::fake_nvml {

/// Which device a handle means: handles are numbers, so they outlive every reading of the state.
struct Place {
  size_t device = 0;
  int instance = -1;  ///< Of MIG; -1 is the device itself.
};
Handle handle_of(Place place);

/// A device or MIG instance during one call.
struct Target {
  const State& state;
  const Json& device;  ///< The whole device, also when an instance is asked.
  const Json& fields;  ///< The instance, or the device.
  Place place;

  bool is_instance() const { return place.instance >= 0; }
  bool has_instances() const { return !is_instance() && !member(device, "mig", "instances").empty(); }
  Answer number(const char* name) const { return resolve(state, member(fields, name)); }
  Answer number(const char* group, const char* name) const { return number(fields, group, name); }
  Answer number(const Json& object, const char* group, const char* name) const;
};

template <typename Number>
int store(Answer answer, Number* out) {
  if (out == nullptr) return kInvalidArgument;
  if (answer.status == kSuccess) *out = static_cast<Number>(answer.number);
  return answer.status;
}

/// NVML's three writings of one place on the bus; the ids of the chip are 0.
PciInfo pci_info(const std::string& bus_id);

/// `text`, as the C interface gives it: INSUFFICIENT_SIZE when it does not fit.
int store_text(const Json& text, char* out, Size length);

/// The bus id as NVML writes it, of the "D:B:S" forms that programs and state files have; empty when it is none.
std::string full_bus_id(const std::string& text);

/// Counts nvmlInit against nvmlShutdown.
void add_user(int count);
bool is_initialised();

/// Waits and fails as the state tells for `function`, with the tables "errors" and "hang_s" of `object`.
int trouble(const Json& object, const char* function);

/// Status of `body(state)`, for functions of the whole library.
template <typename Body>
int on_system(const char* function, Body body) noexcept {
  try {
    if (!is_initialised()) return kUninitialized;
    const auto state = current_state();
    if (state == nullptr) return kUninitialized;
    if (const int status = trouble(state->root, function); status != kSuccess) return status;
    return body(*state);
  } catch (...) {
    return kUnknown;
  }
}

/// Finds what `handle` means; kInvalidArgument when nothing.
int find(const State& state, Handle handle, Place& place);

/// Trouble of the device and of the instance at `place`.
int trouble_at(const State& state, Place place, const char* function);

/// Status of `body(target)`, for functions of a device.
template <typename Body>
int on_device(const char* function, Handle handle, Body body) noexcept {
  return on_system(function, [&](const State& state) -> int {
    Place place;
    if (const int status = find(state, handle, place); status != kSuccess) return status;
    if (const int status = trouble_at(state, place, function); status != kSuccess) return status;
    const Json& device = state.devices[place.device];
    const Json& fields =
        place.instance < 0 ? device : member(device, "mig", "instances")[static_cast<size_t>(place.instance)];
    return body(Target{state, device, fields, place});
  });
}

}  // namespace yoke::fake_nvml
