// tests/run/prefix.h -- an installation of the test's own.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/run/launch.h"

namespace yoke::test {

/// An installation with programs and recipes of the test's own.
struct Prefix : TemporaryFolder {
  Prefix() {
    std::filesystem::create_directories(path("bin"));
    std::filesystem::copy_file(kYoke, path("bin/yoke"));
  }
  Result yoke(std::vector<std::string> words, std::vector<std::pair<std::string, std::string>> environment = {}) const {
    words.insert(words.begin(), path("bin/yoke"));
    return run({.argv = std::move(words), .environment = std::move(environment)});
  }
};

}  // namespace yoke::test
