// tests/support/lines.h -- splits a text into lines. They are copies, because the text is often a temporary in tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/text.h"

namespace yoke::test {

inline std::vector<std::string> lines_of(std::string_view text) {
  const auto lines = yoke::lines_of(text);
  return {lines.begin(), lines.end()};
}

}  // namespace yoke::test
