#include "yoke/claim/report.h"

#include <gtest/gtest.h>

namespace yoke::claim {
namespace {

Time report_time(int64_t second) { return Time(std::chrono::seconds(second)); }

Use past_use(int64_t uid, const std::vector<std::string>& keys, int64_t since, std::optional<int64_t> end,
             std::optional<int64_t> idle) {
  Use use{.uid = uid, .keys = keys, .since = report_time(since), .idle_seconds = idle};
  if (end) use.end = report_time(*end);
  return use;
}

TEST(ClaimReport, AddsUpByUserAndDevice) {
  struct Row {
    const char* what;
    std::vector<Use> uses;
    std::vector<ReportRow> rows;
  };
  using std::chrono::seconds;
  const std::vector<Row> rows = {
      // from second 1,000 to second 2,000
      {"nothing", {}, {}},
      {"a claim of two devices",
       {past_use(1, {"b", "a"}, 1100, 1200, 30)},
       {{1, "a", 1, seconds(100), seconds(30), {}}, {1, "b", 1, seconds(100), seconds(30), {}}}},
      {"two claims of a device",
       {past_use(1, {"a"}, 1100, 1200, 30), past_use(1, {"a"}, 1300, 1350, std::nullopt)},
       {{1, "a", 2, seconds(150), seconds(30), seconds(50)}}},
      {"two users",
       {past_use(2, {"a"}, 1100, 1200, 0), past_use(1, {"a"}, 1300, 1350, 0)},
       {{1, "a", 1, seconds(50), {}, {}}, {2, "a", 1, seconds(100), {}, {}}}},
      {"a claim that runs",
       {past_use(1, {"a"}, 1900, std::nullopt, std::nullopt)},
       {{1, "a", 1, seconds(100), {}, seconds(100)}}},
      {"what was before does not count", {past_use(1, {"a"}, 100, 1000, 10)}, {}},
      {"less than a second", {past_use(1, {"a"}, 1100, 1100, 0)}, {{1, "a", 1, {}, {}, {}}}},
      {"less than a second before", {past_use(1, {"a"}, 900, 900, 0)}, {}},
      {"half of it was before", {past_use(1, {"a"}, 500, 1500, 100)}, {{1, "a", 1, seconds(500), seconds(50), {}}}},
      {"a device that a file names twice",
       {past_use(1, {"a", "a"}, 1100, 1200, 0)},
       {{1, "a", 1, seconds(100), {}, {}}}},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(report_uses(row.uses, report_time(1000), report_time(2000)), row.rows) << row.what;
  }
}

}  // namespace
}  // namespace yoke::claim
