#include "yoke/view/usage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/lines.h"
#include "yoke/base/text.h"

namespace yoke::view {
namespace {

using device::DeviceUsage;
using device::Seconds;
using device::UsageBin;
using device::UsageReport;
using test::lines_of;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

UsageReport use_of_two_gpus() {
  UsageReport report{.duration = Seconds(120), .num_samples = 241};
  DeviceUsage usage{.id = "0", .uuid = "GPU-0", .name = "NVIDIA A100 <80GB>", .was_used = true};
  usage.mean_percent = 87.4;
  usage.p5_percent = 12;
  usage.p50_percent = 93;
  usage.p95_percent = 100;
  usage.under_goal_percent = 24.2;
  usage.last_used = Seconds(120);
  usage.mean_while_used_percent = 87.4;
  usage.memory_peak_bytes = int64_t{38} << 30;
  usage.memory_total_bytes = int64_t{80} << 30;
  usage.mean_power_mw = 301'400;
  usage.peak_power_mw = 398'000;
  usage.energy_mj = 36'168'000;
  usage.is_energy_counted = true;
  usage.bin = Seconds(0.5);
  for (int i = 0; i < 240; ++i) usage.timeline.push_back({i < 24 ? 0.0 : 97.0, 47.5});
  report.devices = {usage, usage};
  report.devices[1].id = "1";
  report.devices[1].mean_percent.reset();
  report.devices[1].energy_mj.reset();
  report.devices[1].timeline.assign(10, {});
  return report;
}

TEST(Usage, TheTextFitsTheWidthAndSaysWhatIsNotKnown) {
  for (const int64_t width : {80, 100}) {
    const auto text =
        usage_text(use_of_two_gpus(), {.program = "python train.py " + std::string(200, 'x'), .sentences = {}}, width);
    for (const auto& line : lines_of(text)) EXPECT_LE(display_width(line), width) << line;
    EXPECT_THAT(text, HasSubstr("under 90 %"));
    EXPECT_THAT(lines_of(text)[2],
                testing::ContainsRegex(" 0 +87 % +12 % +93 % +100 % +24 % +38.0 GiB +301 W +398 W +10.0 Wh"));
    EXPECT_THAT(lines_of(text)[3], testing::ContainsRegex(" 1 +\\? "));
  }
}

TEST(Usage, HostileNamesAreShownHarmless) {
  auto report = use_of_two_gpus();
  report.devices[0].name = "\x1b[2Jgpu\xff";
  const UsageNotes notes{.program = "\x1b]0;title\x07 <b>&", .sentences = {"\x1b[31m"}};
  EXPECT_THAT(usage_text(report, notes, 80), Not(HasSubstr("\x1b")));
  const auto svg = usage_svg(report, notes);
  EXPECT_THAT(svg, Not(HasSubstr("\x1b")));
  EXPECT_THAT(svg, HasSubstr("&lt;b&gt;&amp;"));
  EXPECT_NO_THROW(usage_json(report, notes).dump());
}

TEST(Usage, JsonHasNullForWhatIsNotKnown) {
  const auto json = usage_json(use_of_two_gpus(), {.program = "train", .sentences = {"a note"}});
  EXPECT_EQ(json["duration_seconds"], 120);
  EXPECT_EQ(json["devices"][0]["mean_utilization_percent"], 87.4);
  EXPECT_EQ(json["devices"][0]["energy_mj"], 36'168'000);
  EXPECT_EQ(json["devices"][0]["timeline_utilization_percent"].size(), 240U);
  EXPECT_TRUE(json["devices"][1]["mean_utilization_percent"].is_null());
  EXPECT_TRUE(json["devices"][1]["timeline_utilization_percent"][0].is_null());
  EXPECT_EQ(json["notes"][0], "a note");
}

TEST(Usage, SparklinesShowMeansOfWhatTheyCover) {
  const std::vector<UsageBin> timeline = {{0, {}}, {100, {}}, {50, {}}, {{}, {}}};
  EXPECT_EQ(sparkline(timeline, 80), "▁█▅ ");
  EXPECT_EQ(sparkline(timeline, 2), "▅▅");
  EXPECT_EQ(sparkline({}, 80), "");
  EXPECT_EQ(sparkline(timeline, 0), "");
}

TEST(Usage, RemarksSayWhatTheNumbersDoNot) {
  EXPECT_THAT(remarks(use_of_two_gpus()), testing::ElementsAre("device 1: the driver does not tell its utilisation"));
  auto report = use_of_two_gpus();
  report.devices.pop_back();
  EXPECT_THAT(remarks(report), IsEmpty());
  report.devices[0].first_used = Seconds(30);
  report.devices[0].mean_while_used_percent = 96;
  report.devices[0].unknown = Seconds(9);
  report.devices[0].throttled_percent = {{"power cap", 12}};
  const auto sentences = remarks(report);
  EXPECT_THAT(sentences, Contains("device 0: the program was on it from 30 s to 2:00; mean in this time 96 %"));
  EXPECT_THAT(sentences, Contains("device 0: its clocks were held down for 12 % of the time: power cap"));
  EXPECT_THAT(sentences, Contains("device 0: nothing is known of 9.0 s of the time"));
  report.duration = Seconds(0.4);
  EXPECT_THAT(remarks(report), Contains(HasSubstr("a run this short says little")));
}

TEST(Usage, TheDrawingIsWholeWithNothingToDraw) {
  EXPECT_THAT(usage_svg({}, {}), testing::EndsWith("</svg>\n"));
  UsageReport report;
  report.devices.push_back({.id = "0"});
  EXPECT_THAT(usage_svg(report, {}), testing::EndsWith("</svg>\n"));
  report.duration = Seconds(1e6);
  report.devices[0].bin = Seconds(1000);
  report.devices[0].timeline.assign(1000, {50, 150});  // more than 100 % is drawn as 100 %
  EXPECT_THAT(usage_svg(report, {}), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace yoke::view
