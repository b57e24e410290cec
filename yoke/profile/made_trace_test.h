// yoke/profile/made_trace_test.h -- a trace whose events a test writes one by one. Its times are in microseconds.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/profile/trace.h"

namespace yoke::profile {

struct MadeTrace : Trace {
  MadeTrace& add(Kind kind, int64_t start_us, int64_t length_us, uint32_t track = 1, const std::string& name = "") {
    uint32_t number = 0;
    while (number < names.size() && (names[number].kind != kind || names[number].text != name)) ++number;
    if (number == names.size()) names.push_back({name, kind});
    events.push_back({start_us * 1000, length_us * 1000, number, track});
    return *this;
  }
  MadeTrace& add_step(int64_t step, int64_t start_us, int64_t length_us, uint32_t track = 1) {
    names.push_back({"ProfilerStep#" + std::to_string(step), Kind::kStep, step});
    events.push_back({start_us * 1000, length_us * 1000, static_cast<uint32_t>(names.size() - 1), track});
    return *this;
  }
};

}  // namespace yoke::profile
