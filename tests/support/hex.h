// tests/support/hex.h -- numbers of recorded files, to the last bit.
#pragma once

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

namespace yoke::test {

/// The number that Python's float.hex() wrote: "0x1.8p+1" is 3.
inline double parse_hex(const nlohmann::json& text) { return std::strtod(text.get<std::string>().c_str(), nullptr); }

}  // namespace yoke::test
