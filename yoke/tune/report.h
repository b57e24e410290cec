// yoke/tune/report.h -- the measurements and the answer as text and as JSON. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "yoke/tune/search.h"

namespace yoke::tune {

/// The run that checks the answer for longer.
struct Soak {
  int64_t num_steps = 0;
  double seconds = 0;
  double samples_per_second = 0;
  Memory memory = {};
  double growth_bytes_per_step = 0;  ///< Of resident memory, in the second half; 0 if it does not grow.
};

struct Report {
  SearchOptions options;
  std::span<const Measurement> measurements;
  Answer answer;
  std::optional<Soak> soak;
};

/// "1.20 ms", "3.4 s"
std::string format_step(double seconds);

/// One line for one measurement, for the progress.
std::string to_line(const Measurement& measurement, const SearchOptions& options);

/// A row for each batch size, with its best run.
std::string to_table(const Report& report, int64_t width);

/// What the answer means, in sentences, each a line.
std::string to_text(const Report& report);

nlohmann::json to_json(const Report& report);

}  // namespace yoke::tune
