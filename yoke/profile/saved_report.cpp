// Reads a report that `yoke profile --json` has printed, for `yoke profile --compare`.
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/json.h"
#include "yoke/base/text.h"
#include "yoke/profile/compare.h"
#include "yoke/profile/trace_file.h"

namespace yoke::profile {
namespace {

/// Whether the file begins as a report does, with any blanks. A FIFO or a device is not read.
bool is_report(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream file(path);
  char brace = 0;
  std::string member;
  return file >> brace && brace == '{' && file >> member && member.starts_with("\"bottleneck\"");
}

MeanTime time_of(const Json& json) {
  const auto& error = json.at("error_ms");
  return {json.at("ms").get<double>(), error.is_null() ? std::nullopt : std::optional(error.get<double>())};
}

std::optional<Spread> spread_of(const Json& step) {
  if (!step.contains("median_ms")) return std::nullopt;
  return Spread{.median_ms = step.at("median_ms").get<double>(),
                .num_long = step.at("long").get<int64_t>(),
                .num_parts = step.at("parts").get<int64_t>()};
}

Report report_of(const Json& json) {
  Report report;
  for (const auto& of_rank : json.at("ranks")) {
    RankLine rank{.rank = of_rank.at("rank").get<int64_t>(),
                  .num_steps = of_rank.at("steps").get<int64_t>(),
                  .has_device = of_rank.at("device").get<bool>(),
                  .step = time_of(of_rank.at("step")),
                  .spread = spread_of(of_rank.at("step"))};
    const auto& phases = of_rank.at("phases");
    for (size_t i = 0; i < kNumPhases; ++i) {  // a Run's report has those alone that it knows
      const auto found = phases.find(std::string(kPhaseNames[i].name));
      rank.phases[i] = found == phases.end() ? MeanTime{.ms = 0, .error_ms = 0} : time_of(*found);
    }
    report.ranks.push_back(std::move(rank));
  }
  report.is_of_run = json.contains("first_step");
  if (report.ranks.empty()) throw Error(ErrorCode::kDataLoss, "it has no ranks");
  if (const auto& size = json.at("world_size"); !size.is_null()) report.world_size = size.get<int64_t>();
  for (const auto& operation : json.at("operations")) {
    report.operations.push_back({operation.at("name").get<std::string>(), operation.at("ms_per_step").get<double>()});
  }
  return report;
}

}  // namespace

std::optional<Report> read_report(const std::filesystem::path& given) {
  std::error_code not_there;
  const auto path = std::filesystem::is_directory(given, not_there) ? given / kRunReport : given;
  if (!is_report(path)) return std::nullopt;
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    auto report = report_of(Json::parse(text));
    if (path != given && !traces_in(given).empty()) {
      report.notes.push_back(fmt::format("Of {}, {} is compared, not the other files for traces there.",
                                         printable(given.string()), kRunReport));
    }
    return report;
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kDataLoss,
                "{}: this is no report that can be compared ({}); reports of older versions have no phases: give the "
                "traces, or record again",
                printable(path.string()), printable(error.what()));
  }
}

}  // namespace yoke::profile
