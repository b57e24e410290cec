// tests/support/fake_machine.h -- runs `yoke` on machines whose NVIDIA driver is fakes/nvml.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/command.h"

namespace yoke::test {

using Json = nlohmann::json;

/// Returns the variables that make a program load the driver in `fakes`, with the GPUs of a state file.
inline std::vector<std::pair<std::string, std::string>> driver_with(const std::string& state_file,
                                                                    const std::string& fakes = YOKE_FAKES_FOLDER) {
  return {{"YOKE_FAKE_NVML", state_file}, {"LD_LIBRARY_PATH", fakes}};
}

/// The deadline for a driver that hangs, in seconds: ten times what the other devices need on a busy machine. In tests
/// such a driver hangs for 1000 s, far longer than run() lets a command run.
constexpr const char* kShortDeadline = "2";

/// `state` is the name of a file in fakes/nvml/states or the path of a state; empty: there is no driver. Unless a
/// device of the state hangs, only a busy test machine could exceed a deadline, so devices, ps and metrics get one that
/// is never reached.
inline CommandOptions on_machine(const std::string& state, std::vector<std::string> words,
                                 const std::string& fakes = YOKE_FAKES_FOLDER) {
  const bool is_path = state.find('/') != std::string::npos;
  const auto path = is_path ? state : YOKE_STATES_FOLDER "/" + state + ".json";
  const auto has = [&](const char* word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  const bool reads = !words.empty() && (words[0] == "devices" || words[0] == "ps" || words[0] == "metrics");
  if (reads && !has("--deadline") && !has("--replay")) {
    const bool hangs = slurp(path).find("hang_s") != std::string::npos;
    words.insert(words.begin() + 1, {"--deadline", hangs ? kShortDeadline : "60"});
  }
  words.insert(words.begin(), YOKE_COMMAND);
  CommandOptions options{.argv = std::move(words), .without = {"YOKE_FAKE_NVML", "COLUMNS"}};
  if (!state.empty()) options.environment = driver_with(path, fakes);
  return options;
}

inline Result yoke_on(const std::string& state, std::vector<std::string> words) {
  return run(on_machine(state, std::move(words)));
}

/// Returns the devices in the output of `yoke devices --json`, without the CPU.
inline std::vector<Json> gpus_of(const Result& result) {
  std::vector<Json> gpus;
  const auto snapshot = Json::parse(result.out);
  for (const auto& device : snapshot.at("devices")) {
    if (device.at("vendor") != "cpu") gpus.push_back(device);
  }
  return gpus;
}

/// A machine with GPUs that the test chooses, and a folder for files.
class FakeMachine {
 public:
  /// `state` is a state of fakes/nvml (docs/fakes.md).
  explicit FakeMachine(const Json& state) { folder_.write("state.json", state.dump()); }

  /// The GPUs are used by these processes. Each process uses 1 GiB more memory than the one before.
  FakeMachine(std::initializer_list<std::vector<pid_t>> pids_by_device) : FakeMachine(state_with(pids_by_device)) {}

  const TemporaryFolder& folder() const { return folder_; }
  std::string path(std::string_view file) const { return folder_.path(file); }
  std::string state() const { return path("state.json"); }
  CommandOptions yoke(std::vector<std::string> words) const { return on_machine(state(), std::move(words)); }

 private:
  static Json state_with(std::initializer_list<std::vector<pid_t>> pids_by_device) {
    Json state = {{"devices", pids_by_device.size()}};
    int device = 0;
    for (const auto& pids : pids_by_device) {
      auto processes = Json::array();
      for (const auto pid : pids) {
        processes.push_back({{"pid", pid}, {"memory_mib", 1024 * (processes.size() + 1)}, {"sm", 90}});
      }
      state["overrides"][std::to_string(device++)]["processes"] = processes;
    }
    return state;
  }

  TemporaryFolder folder_;
};

}  // namespace yoke::test
