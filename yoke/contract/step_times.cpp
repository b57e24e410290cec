#include "yoke/contract/step_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace yoke {
namespace {

constexpr std::pair<const char*, int64_t StepMemory::*> kMemory[] = {
    {"resident_peak_bytes", &StepMemory::resident_peak_bytes},
    {"address_space_peak_bytes", &StepMemory::address_space_peak_bytes},
    {"address_space_limit_bytes", &StepMemory::address_space_limit_bytes},
    {"device_peak_bytes", &StepMemory::device_peak_bytes},
    {"device_limit_bytes", &StepMemory::device_limit_bytes}};

constexpr int64_t kNsPerSecond = 1'000'000'000;

}  // namespace

std::string to_line(const StepTimesRank& rank) {
  return fmt::format("{{\"rank\":{},\"world_size\":{},\"local_world_size\":{},\"pid\":{}}}\n", rank.rank,
                     rank.world_size, rank.local_world_size, rank.pid);
}

std::string to_line(const StepTime& time) {
  auto line = fmt::format("{{\"step\":{},\"seconds\":{}.{:09}", time.step, time.time_ns / kNsPerSecond,
                          time.time_ns % kNsPerSecond);
  for (const auto& [name, member] : kMemory) {
    if (time.memory.*member != 0) fmt::format_to(std::back_inserter(line), ",\"{}\":{}", name, time.memory.*member);
  }
  return line + "}\n";
}

std::variant<std::monostate, StepTimesRank, StepTime> parse_step_times(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return {};
  try {
    if (!json.contains("step")) {
      StepTimesRank rank{json.value("rank", int64_t{0}), std::max(int64_t{1}, json.value("world_size", int64_t{1}))};
      rank.local_world_size = std::clamp(json.value("local_world_size", int64_t{1}), int64_t{1}, rank.world_size);
      rank.pid = json.value("pid", int64_t{0});
      return rank;
    }
    const double seconds = json.at("seconds");
    if (!(seconds >= 0 && seconds < 9e9)) return {};  // it must fit into 63 bits
    StepTime time{json.at("step"), std::llround(seconds * 1e9)};
    for (const auto& [name, member] : kMemory) time.memory.*member = json.value(name, int64_t{0});
    return time;
  } catch (const nlohmann::json::exception&) {  // a value of a different type
    return {};
  }
}

}  // namespace yoke
