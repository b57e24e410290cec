// tests/jobs/job.h -- jobs that run while a test inspects them.
#pragma once

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/command.h"

namespace yoke::test {

using Json = nlohmann::json;

inline constexpr const char* kYoke = YOKE_COMMAND;
inline constexpr const char* kHang = YOKE_TEST_HANG;  ///< tests/jobs/hang.cpp
inline constexpr int kSomebodyElse = 4321;

inline CommandOptions yoke(std::vector<std::string> words) {
  words.insert(words.begin(), kYoke);
  return {.argv = std::move(words)};
}

/// Starts `yoke run WORDS...`; the destructor ends it.
class RunningJob : public Command {
 public:
  explicit RunningJob(std::vector<std::string> words) : Command(options(std::move(words))) {}
  static RunningJob shell(int num_ranks, const std::string& script) {
    return RunningJob({"-n", std::to_string(num_ranks), "--", "sh", "-c", script});
  }

  /// Waits until each of `count` ranks has printed "ready".
  bool is_ready(int count) {
    return wait_until([&] {
      int found = 0;
      for (auto at = out().find("ready"); at != std::string::npos; at = out().find("ready", at + 1)) ++found;
      return found >= count;
    });
  }
  std::string name() const { return std::to_string(pid()); }

 private:
  static CommandOptions options(std::vector<std::string> words) {
    words.insert(words.begin(), "run");
    return yoke(std::move(words));
  }
};

/// Returns the output of `yoke jobs --json` for the launcher `pid`.
inline std::optional<Json> find_job(pid_t pid) {
  const auto result = run(yoke({"jobs", "--json"}));
  const auto jobs = Json::parse(result.out).at("jobs");
  for (const auto& job : jobs) {
    if (job.at("pid") == pid) return job;
  }
  return std::nullopt;
}

/// Copies a program to where all users may start it, because other users may not be able to read the build folder.
inline std::string for_everybody(const TemporaryFolder& folder, const std::string& program) {
  const auto copy = folder.path(std::filesystem::path(program).filename().native());
  std::filesystem::copy_file(program, copy, std::filesystem::copy_options::skip_existing);
  chmod(copy.c_str(), 0755);
  chmod(folder.path().c_str(), 0755);
  return copy;
}

/// Runs `argv` as a different user. REQUIRES: root.
inline CommandOptions as_somebody_else(std::vector<std::string> argv) {
  const auto user = std::to_string(kSomebodyElse);
  argv.insert(argv.begin(), {"setpriv", "--reuid=" + user, "--regid=" + user, "--clear-groups"});
  return {.argv = std::move(argv), .folder = "/"};
}

}  // namespace yoke::test
