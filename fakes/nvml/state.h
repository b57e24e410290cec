// fakes/nvml/state.h -- what the fake library pretends, read from the file that YOKE_FAKE_NVML names.
//
// docs/fakes.md describes the file. It is read again when it changes; a file that is being written, or holds a mistake,
// leaves the state before it in force. All functions may be called by any thread.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace yoke::fake_nvml {

using Json = nlohmann::json;

/// A value of the state at one moment: `number` where `status` is kSuccess.
struct Answer {
  int status;
  double number;
};

struct State {
  Json root;                  ///< The file, without its devices.
  std::vector<Json> devices;  ///< Each complete: what is left out is in it as its default.
  double since = 0;           ///< Seconds of the Unix clock at which values that change over time begin.
  double step_s = 1;          ///< How long each entry of a list of values lasts.
};

/// The state in force, as shared and unchanging data; null where no usable file has been seen yet.
std::shared_ptr<const State> current_state();

/// The state that `text` describes, of a file modified at that time; throws std::exception with what is wrong.
State parse_state(const std::string& text, double modified_at);

/// What `value` is now. A number or boolean is itself; a list is one of its entries, by time; {"start", "per_second"}
/// grows; a name is an error ("lost"); null, or what is not there, is not supported.
Answer resolve(const State& state, const Json& value);

/// The member of `object` at `name`, then at `member` in it; null where there is none.
const Json& member(const Json& object, const char* name);
const Json& member(const Json& object, const char* name, const char* inner);

/// The status that a name such as "lost" or a number stands for; kUnknown for others.
int status_of(const Json& error);

/// What NVML says of a status, in words.
const char* text_of(int status);

}  // namespace yoke::fake_nvml
