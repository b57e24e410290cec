// fakes/nvml/state.h -- the state that the fake library simulates, read from the file that YOKE_FAKE_NVML names.
//
// docs/fakes.md describes the file. It is read again when it changes; if it is half-written or holds a mistake, the
// previous state stays current. All functions may be called from any thread.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace yoke::fake_nvml {

using Json = nlohmann::json;

/// The value of a field at one moment. `number` is valid if `status` is kSuccess.
struct Answer {
  int status;
  double number;
};

struct State {
  Json root;                  ///< The file without its devices.
  std::vector<Json> devices;  ///< With defaults for the fields that the file leaves out.
  double since = 0;           ///< The time at which values that change over time start, as Unix time.
  double step_s = 1;          ///< Duration of each entry in a list of values.
};

/// The current state, shared and immutable; null if no usable file has been read yet.
std::shared_ptr<const State> current_state();

/// Parses the text of a state file modified at `modified_at`. Throws a std::exception that says what is wrong.
State parse_state(const std::string& text, double modified_at);

/// Returns what `value` means now: a number or boolean is itself; a list is its entry for the present time; {"start",
/// "per_second"} is a number that grows; a name such as "lost" is an error; null or a missing value is "not supported".
Answer resolve(const State& state, const Json& value);

/// The member `name` of `object`, or the member `inner` of that member; null if there is none.
const Json& member(const Json& object, const char* name);
const Json& member(const Json& object, const char* name, const char* inner);

/// The status for a name such as "lost" or for a number; kUnknown for anything else.
int status_of(const Json& error);

/// NVML's text for a status.
const char* text_of(int status);

}  // namespace yoke::fake_nvml
