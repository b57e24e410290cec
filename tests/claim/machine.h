// tests/claim/machine.h -- a machine with eight fake GPUs, a folder of locks, and several users.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_machine.h"

namespace yoke::test {

/// Users that exist on no machine. Only root can become one of them.
constexpr uid_t kAda = 61'001, kBob = 61'002;

class ClaimMachine {
 public:
  explicit ClaimMachine(const Json& state = {{"devices", 8}}) {
    chmod(folder_.path().c_str(), 0755);
    set_state(state);
    std::filesystem::create_directory(locks());
    chmod(locks().c_str(), 01777);
    std::filesystem::create_directory(folder_.path("lib"));
    // Copies, because other users may not reach the build tree.
    std::filesystem::copy_file(YOKE_COMMAND, folder_.path("yoke"));
    std::filesystem::copy_file(YOKE_FAKES_FOLDER "/libnvidia-ml.so.1", folder_.path("lib/libnvidia-ml.so.1"));
    std::filesystem::copy_file(YOKE_CLAIMANT, folder_.path("claimant"));
  }
  ~ClaimMachine() {
    for (const auto pid : processes_with_tag(tag_)) kill(pid, SIGKILL);
    wait_until([&] { return processes_with_tag(tag_).empty(); });
  }

  std::string locks() const { return folder_.path("locks"); }
  std::string path(const std::string& file) const { return folder_.path(file); }
  const std::string& tag() const { return tag_; }
  void set_state(const Json& state) const {
    folder_.write("new.json", state.dump());
    std::filesystem::rename(folder_.path("new.json"), folder_.path("state.json"));
  }
  void write(const std::string& file, const std::string& text) const { folder_.write(file, text); }

  /// A command of this user. The drivers get a deadline that is never reached.
  CommandOptions yoke(std::vector<std::string> words) const {
    constexpr std::array kReaders = {"claim", "claims", "devices", "extend", "reserve"};
    const bool reads = std::find(kReaders.begin(), kReaders.end(), words[0]) != kReaders.end();
    if (reads) words.insert(words.begin() + 1, {"--deadline", "60"});
    words.insert(words.begin(), path("yoke"));
    return {
        .argv = std::move(words),
        .environment = {{"YOKE_FAKE_NVML", path("state.json")},
                        {"LD_LIBRARY_PATH", path("lib")},
                        {"YOKE_CLAIM_DIR", locks()},
                        {"YOKE_TEST_TAG", tag_},
                        {"HOME", path("home")}},
        .without = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "XDG_CONFIG_HOME", "YOKE_SITE_CONFIG", "COLUMNS"}};
  }
  /// The same of a different user. REQUIRES: this process is root.
  CommandOptions yoke_as(uid_t uid, std::vector<std::string> words) const { return as(uid, yoke(std::move(words))); }
  static CommandOptions as(uid_t uid, CommandOptions options) {
    const auto number = std::to_string(uid);
    options.argv.insert(options.argv.begin(), {"setpriv", "--reuid", number, "--regid", number, "--clear-groups"});
    return options;
  }
  /// A program that prints its devices and then waits for its end.
  static std::vector<std::string> claim_and_wait(std::vector<std::string> options) {
    options.insert(options.begin(), "claim");
    options.insert(options.end(), {"--", "sh", "-c", "echo started $CUDA_VISIBLE_DEVICES; exec sleep 1000"});
    return options;
  }

  Json claims() const { return Json::parse(run(yoke({"claims", "--json"})).out); }
  int64_t num_claimed() const { return static_cast<int64_t>(claims().at("claims").size()); }

 private:
  TemporaryFolder folder_;
  std::string tag_ = new_tag();
};

}  // namespace yoke::test
