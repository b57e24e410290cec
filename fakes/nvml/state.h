// fakes/nvml/state.h -- the state that the fake NVML simulates, read from the file that YOKE_FAKE_NVML names.
//
// docs/fakes.md describes the file. The fake reads it again when it changes. While it is half-written or invalid, the
// previous state stays current. All functions may be called from any thread.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace yoke::fake_nvml {

using Json = nlohmann::json;

/// The value of a field at a given time. `number` is valid if `status` is kSuccess.
struct Answer {
  int status;
  double number;
};

struct State {
  Json root;                  ///< The content of the file without its devices.
  std::vector<Json> devices;  ///< The devices, with defaults for the fields that the file omits.
  double since = 0;           ///< The Unix time from which values change over time.
  double step_s = 1;          ///< How long each entry in a list of values is valid.
};

/// Returns the current state, which is shared and immutable; null if no valid file has been read yet.
std::shared_ptr<const State> current_state();

/// Parses a state file that was modified at `modified_at`. Throws a std::exception that says what is invalid.
State parse_state(const std::string& text, double modified_at);

/// Returns the current meaning of `value`. A number or boolean is itself. A list gives its entry for the current time.
/// {"start", "per_second"} is a growing number. A name such as "lost" is an error. null is "not supported".
Answer resolve(const State& state, const Json& value);

/// Returns the member `name` of `object`, or the member `inner` of that member; null if it does not exist.
const Json& member(const Json& object, const char* name);
const Json& member(const Json& object, const char* name, const char* inner);

/// Returns the status with a name, such as "lost", or a number; kUnknown for anything else.
int status_of(const Json& error);

/// Returns NVML's text for a status.
const char* text_of(int status);

}  // namespace yoke::fake_nvml
