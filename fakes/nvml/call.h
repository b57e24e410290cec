// fakes/nvml/call.h -- the beginning and end that all functions of the fake NVML have in common.
//
// Each function finds the current state and the device of its handle, applies the errors and delays in the state, and
// then runs its own code. No exception leaves the C interface.
#pragma once

#include <memory>
#include <string>

#include "nvml_abi.h"
#include "state.h"

namespace yoke::fake_nvml {

/// The device of a handle. Handles are numbers, so they stay valid when the state is read again.
struct Place {
  size_t device = 0;
  int instance = -1;  ///< Number of the MIG instance; -1 is the device itself.
};
Handle handle_of(Place place);

/// The device or MIG instance on which a function is called.
struct Target {
  const State& state;
  const Json& device;  ///< The whole device, even if the handle is that of a MIG instance.
  const Json& fields;  ///< The fields of the instance, or of the device if there is no instance.
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

/// Returns NVML's structure with a bus id in three forms: numbers, short text and long text. The ids of the chip are 0.
PciInfo pci_info(const std::string& bus_id);

/// Stores `text` as NVML returns strings. Returns INSUFFICIENT_SIZE if `text` does not fit.
int store_text(const Json& text, char* out, Size length);

/// Converts a bus id to the form that NVML writes, from any of the forms "D:B:S" that programs and state files use.
/// Returns an empty text if `text` has a different form.
std::string full_bus_id(const std::string& text);

/// Changes the number of users, which is the number of nvmlInit calls minus that of nvmlShutdown calls, by `count`.
void add_user(int count);
bool is_initialised();

/// Waits, and returns an error, as the tables "hang_s" and "errors" of `object` specify for `function`.
int trouble(const Json& object, const char* function);

/// Returns the status of `body(state)`. For functions about the whole library.
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

/// Finds the device of `handle`. Returns kInvalidArgument if there is no such device.
int find(const State& state, Handle handle, Place& place);

/// Calls trouble() for the device and for the instance at `place`.
int trouble_at(const State& state, Place place, const char* function);

/// Returns the status of `body(target)`. For functions about a device.
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
