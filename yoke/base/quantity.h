// yoke/base/quantity.h -- numbers, lengths of time and sizes of memory as users and configuration files write them.
// Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace yoke {

/// A finite number: "0.25", "1e-3". nullopt: any other text.
std::optional<double> parse_real(std::string_view text);

/// "90s", "30m", "4h", "7d", "1d12h", or a number of seconds. nullopt: any other text, zero, or more than ten years.
std::optional<std::chrono::seconds> parse_length(std::string_view text);

/// "20GiB", "79.5GiB", "500MiB", "1TiB", "1024KiB" or "4096B". nullopt: any other text, zero, or more than 2^60 bytes.
/// A number alone has no unit, so it is refused.
std::optional<int64_t> parse_memory(std::string_view text);

}  // namespace yoke
