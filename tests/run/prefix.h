// tests/run/prefix.h -- a separate installation of yoke for a test.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/run/launch.h"

namespace yoke::test {

/// An installation to which a test adds programs and recipes.
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
