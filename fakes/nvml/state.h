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

/// A value of the state at one moment. `number` is valid if `status` is kSuccess.
struct Answer {
  int status;
  double number;
};

struct State {
  Json root;                  ///< The file without its devices.
  std::vector<Json> devices;  ///< Each one complete: defaults stand for fields that the file leaves out.
  double since = 0;           ///< Start of the values that change over time, in seconds of the Unix clock.
  double step_s = 1;          ///< Duration of each entry in a list of values.
};

/// The current state, shared and immutable; null if no usable file has been read yet.
std::shared_ptr<const State> current_state();

/// The state that `text` describes, from a file modified at that time. Throws std::exception that says what is wrong.
State parse_state(const std::string& text, double modified_at);

/// The present meaning of `value`. A number or boolean means itself; a list means one of its entries, by time;
/// {"start", "per_second"} grows; a name is an error ("lost"); null or a missing value means "not supported".
Answer resolve(const State& state, const Json& value);

/// The member `name` of `object`, or the member `member` of that; null if there is none.
const Json& member(const Json& object, const char* name);
const Json& member(const Json& object, const char* name, const char* inner);

/// The status for a name such as "lost" or for a number; kUnknown for anything else.
int status_of(const Json& error);

/// NVML's text for a status.
const char* text_of(int status);

}  // namespace yoke::fake_nvml
