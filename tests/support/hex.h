// tests/support/hex.h -- exact numbers from recorded files.
#pragma once

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

namespace yoke::test {

/// Parses the output of Python's float.hex(): "0x1.8p+1" is 3.
inline double parse_hex(const nlohmann::json& text) { return std::strtod(text.get<std::string>().c_str(), nullptr); }

}  // namespace yoke::test
