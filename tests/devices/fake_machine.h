// tests/devices/fake_machine.h -- the command `yoke` on a machine whose NVIDIA driver is fakes/nvml.
#pragma once

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/command.h"

namespace yoke::test {

using Json = nlohmann::json;

/// `state`: the name of a file in fakes/nvml/states, or the path of a state; empty: no driver at all. Where nothing
/// hangs there, what is slow is this machine: the deadline of devices, ps and metrics is out of its reach then.
inline CommandOptions on_machine(const std::string& state, std::vector<std::string> words,
                                 const std::string& fakes = YOKE_FAKES_FOLDER) {
  const bool is_path = state.find('/') != std::string::npos;
  const auto path = is_path ? state : YOKE_STATES_FOLDER "/" + state + ".json";
  const auto has = [&](const char* word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  const bool reads = !words.empty() && (words[0] == "devices" || words[0] == "ps" || words[0] == "metrics");
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  if (reads && !has("--deadline") && !has("--replay") && content.str().find("hang_s") == std::string::npos) {
    words.insert(words.begin() + 1, {"--deadline", "60"});
  }
  words.insert(words.begin(), YOKE_COMMAND);
  CommandOptions options{.argv = std::move(words), .without = {"YOKE_FAKE_NVML", "COLUMNS"}};
  if (state.empty()) return options;
  options.environment = {{"YOKE_FAKE_NVML", path}, {"LD_LIBRARY_PATH", fakes}};
  return options;
}

inline Result yoke_on(const std::string& state, std::vector<std::string> words) {
  return run(on_machine(state, std::move(words)));
}

/// The devices of `yoke devices --json` that are no CPU.
inline std::vector<Json> gpus_of(const Result& result) {
  std::vector<Json> gpus;
  const auto snapshot = Json::parse(result.out);
  for (const auto& device : snapshot.at("devices")) {
    if (device.at("vendor") != "cpu") gpus.push_back(device);
  }
  return gpus;
}

}  // namespace yoke::test
