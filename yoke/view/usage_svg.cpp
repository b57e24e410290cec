// The drawing of `yoke watch --svg`: utilisation and memory over time, one panel for each device.
#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/format.h"
#include "yoke/view/axis.h"
#include "yoke/view/svg.h"
#include "yoke/view/usage.h"

namespace yoke::view {
namespace {

using device::DeviceUsage;
using device::UsageBin;
using device::UsageReport;

// Lengths in pixels.
constexpr double kPageWidth = 880, kLeft = 56, kRight = 20, kTop = 64, kPlotHeight = 96, kPanelHeight = 168;
constexpr double kPlotWidth = kPageWidth - kLeft - kRight;
constexpr size_t kMaxSteps = 400;  ///< More steps could not be distinguished.

constexpr SvgStyle kUsageStyle{.light = R"(.use{fill:#0969da;fill-opacity:.28;stroke:#0969da}
.mem{fill:none;stroke:#9a6700;stroke-width:1.5}.goal{stroke:#1a7f37;stroke-dasharray:5 4})",
                               .dark = R"(
.use{fill:#4493f8;stroke:#4493f8}.mem{stroke:#d29922}.goal{stroke:#3fb950})"};

struct Step {
  double begin = 0, end = 0;  ///< Distance from the left edge of the plot in pixels.
  std::optional<double> percent;
};

/// Converts the timeline to at most kMaxSteps steps. A step is the mean of its bins.
std::vector<Step> steps_of(const DeviceUsage& usage, double duration, std::optional<double> UsageBin::*value) {
  const auto num_bins = usage.timeline.size();
  const auto num_steps = std::min(num_bins, kMaxSteps);
  std::vector<Step> steps;
  for (size_t step = 0; step < num_steps; ++step) {
    const auto first = step * num_bins / num_steps, last = (step + 1) * num_bins / num_steps;
    const auto x = [&](size_t bin) {
      return kPlotWidth * std::min(1.0, static_cast<double>(bin) * usage.bin.count() / duration);
    };
    steps.push_back({x(first), x(last), mean_of({usage.timeline.data() + first, last - first}, value)});
  }
  return steps;
}

/// Draws `steps` as a path. Zero is at y = `bottom`. A path that will be filled is closed at the bottom.
std::string path_of(const std::vector<Step>& steps, double bottom, bool is_filled) {
  std::string path;
  bool is_drawing = false;
  double right = 0;
  const auto close = [&] {
    if (is_drawing && is_filled) path += fmt::format("L{:.1f} {:.1f}Z", right, bottom);
    is_drawing = false;
  };
  for (const auto& step : steps) {
    if (!step.percent) {
      close();
      continue;
    }
    const double y = bottom - kPlotHeight * std::clamp(*step.percent, 0.0, 100.0) / 100;
    if (!is_drawing && is_filled) path += fmt::format("M{:.1f} {:.1f}", kLeft + step.begin, bottom);
    path += fmt::format("{}{:.1f} {:.1f}H{:.1f}", is_drawing || is_filled ? 'L' : 'M', kLeft + step.begin, y,
                        kLeft + step.end);
    is_drawing = true;
    right = kLeft + step.end;
  }
  close();
  return path;
}

std::string summary_of(const DeviceUsage& usage, double goal_percent) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (usage.mean_percent) add(fmt::format("mean {:.0f} %", *usage.mean_percent));
  if (usage.p50_percent) {
    add(fmt::format("p5 {:.0f}, p50 {:.0f}, p95 {:.0f} %", *usage.p5_percent, *usage.p50_percent, *usage.p95_percent));
  }
  if (usage.under_goal_percent)
    add(fmt::format("{:.0f} % of the time under {:.4g} %", *usage.under_goal_percent, goal_percent));
  if (usage.memory_peak_bytes) add("memory up to " + format_bytes(*usage.memory_peak_bytes));
  if (usage.mean_power_mw) add(fmt::format("{:.0f} W", static_cast<double>(*usage.mean_power_mw) / 1e3));
  return text;
}

std::string panel(const DeviceUsage& usage, const UsageReport& report, double top) {
  const double duration = std::max(1e-3, report.duration.count());
  const double plot_top = top + 36, bottom = plot_top + kPlotHeight;
  auto svg =
      svg_text(kLeft, top + 10, "b",
               svg_fit(fmt::format("Device {}{}{}", usage.id, usage.name.empty() ? "" : ": ", usage.name), kPlotWidth));
  svg += svg_text(kLeft, top + 26, "m", svg_fit(summary_of(usage, report.goal_percent), kPlotWidth));
  for (const int percent : {0, 50, 100}) {
    const double y = bottom - kPlotHeight * percent / 100;
    svg += svg_line("grid", kLeft, y, kLeft + kPlotWidth, y);
    svg += svg_text(kLeft - 6, y + 4, "m r", fmt::format("{} %", percent));
  }
  const double tick = tick_seconds(duration, 8);
  for (int i = 0; i * tick <= duration * (1 + 1e-9); ++i) {
    const double x = kLeft + kPlotWidth * i * tick / duration;
    svg += svg_line("grid", x, bottom, x, bottom + 4);
    svg += svg_text(x, bottom + 16, "m c", i == 0 ? "0" : time_label(i * tick));
  }
  svg += fmt::format("<path class=\"use\" d=\"{}\"/>\n",
                     path_of(steps_of(usage, duration, &UsageBin::utilization_percent), bottom, true));
  svg += fmt::format("<path class=\"mem\" d=\"{}\"/>\n",
                     path_of(steps_of(usage, duration, &UsageBin::memory_percent), bottom, false));
  const double goal = bottom - kPlotHeight * std::clamp(report.goal_percent, 0.0, 100.0) / 100;
  return svg + svg_line("goal", kLeft, goal, kLeft + kPlotWidth, goal);
}

}  // namespace

std::string usage_svg(const UsageReport& report, const UsageNotes& notes) {
  const double notes_height = 16 * static_cast<double>(notes.sentences.size());
  const double height = kTop + kPanelHeight * static_cast<double>(report.devices.size()) + notes_height + 12;
  std::string svg = svg_page(kPageWidth, height, kUsageStyle);
  svg += svg_text(kLeft, 26, "b", svg_fit(notes.program, kPlotWidth - 120));
  svg += svg_text(kLeft + kPlotWidth, 26, "m r", format_duration(report.duration));
  // The legend.
  svg += fmt::format("<rect class=\"use\" x=\"{}\" y=\"38\" width=\"14\" height=\"9\"/>\n", kLeft);
  svg += svg_text(kLeft + 20, 46, "m", "utilisation");
  svg += svg_line("mem", kLeft + 100, 43, kLeft + 114, 43) + svg_text(kLeft + 120, 46, "m", "memory in use");
  svg += svg_line("goal", kLeft + 220, 43, kLeft + 234, 43) +
         svg_text(kLeft + 240, 46, "m", fmt::format("goal, {:.4g} %", report.goal_percent));
  double top = kTop + 4;
  for (const auto& usage : report.devices) {
    svg += panel(usage, report, top);
    top += kPanelHeight;
  }
  for (const auto& sentence : notes.sentences) {
    svg += svg_text(kLeft, top, "m", svg_fit(sentence, kPlotWidth));
    top += 16;
  }
  return svg + "</svg>\n";
}

}  // namespace yoke::view
