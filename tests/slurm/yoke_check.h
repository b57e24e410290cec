// tests/slurm/yoke_check.h -- how tests run `yoke slurm check`, and read what it finds.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace yoke::test {

using Json = nlohmann::json;

inline std::vector<std::string> yoke_check(const std::vector<std::string>& words) {
  std::vector<std::string> argv = {YOKE_COMMAND, "slurm", "check", "--json"};
  argv.insert(argv.end(), words.begin(), words.end());
  return argv;
}

/// "rule:line" of errors and warnings.
inline std::set<std::string> found_in(const std::string& output) {
  std::set<std::string> result;
  const auto json = Json::parse(output);
  for (const auto& finding : json["findings"]) {
    if (finding["severity"] == "note") continue;
    result.insert(finding["rule"].get<std::string>() + ":" + std::to_string(finding["line"].get<int64_t>()));
  }
  return result;
}

}  // namespace yoke::test
