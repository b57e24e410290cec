#include "yoke/tui/view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "yoke/base/format.h"
#include "yoke/device/uses.h"
#include "yoke/tui/processes.h"

namespace yoke::tui {
namespace {

std::string clock_text(const Model& model) {
  const auto time = std::chrono::system_clock::to_time_t(model.sample->snapshot.time);
  std::tm local = {};
  std::array<char, 64> text = {};
  std::strftime(text.data(), text.size(), model.is_recording ? "recording of %F %T" : "%T", localtime_r(&time, &local));
  return std::string(text.data()) + (model.is_recording && model.sample->is_last ? ", its end" : "");
}

std::string driver_text(const device::Snapshot& snapshot) {
  for (const auto& report : snapshot.backends) {
    if (report.driver_version.empty()) continue;
    return report.backend == "nvml" && !report.api_version.empty()
               ? fmt::format("driver {}, CUDA {}", report.driver_version, report.api_version)
               : "driver " + report.driver_version;
  }
  return "";
}

void draw_title(Canvas& canvas, const Model& model, const Layout& layout) {
  const auto width = model.size.width;
  if (!model.sample) {
    canvas.put({1, 0}, "reading the devices...", Style::kDim);
    return;
  }
  const auto& snapshot = model.sample->snapshot;
  auto right = clock_text(model);
  if (layout.num_gpus_shown < layout.num_gpus) {
    right = fmt::format("GPU {}-{} of {} [ ]   {}", layout.first_device + 1,
                        layout.first_device + layout.num_gpus_shown, layout.num_gpus, right);
  }
  const auto host = fit(printable(snapshot.host.empty() ? "yoke top" : snapshot.host), std::max<int64_t>(8, width / 3));
  auto x = canvas.put({1, 0}, host, Style::kTitle);
  auto end = width - 1;
  if (end - display_width(right) > x) {
    end -= display_width(right);
    canvas.put({end, 0}, right, Style::kDim);
  }
  constexpr int64_t kBetween = 3;
  const auto add = [&](const std::string& label, const std::string& text) {
    const auto start = x + kBetween;
    if (text.empty() || start + display_width(label + text) + kBetween > end) return;
    x = canvas.put({start, 0}, label, Style::kDim);
    x = canvas.put({x, 0}, text);
  };
  const auto& host_readings = model.sample->host;
  if (host_readings.load) add("load ", fmt::format("{:.2f}", fmt::join(*host_readings.load, " ")));
  if (host_readings.swap_total_bytes.value_or(0) > 0) {
    add("swap ", format_bytes(*host_readings.swap_used_bytes));
  }
  add("", printable(driver_text(snapshot)));
}

/// Draws keys with their meanings. Keys that do not fit before column `end` are left out.
void draw_keys(Canvas& canvas, int64_t y, int64_t end) {
  constexpr std::pair<const char*, const char*> kHints[] = {{"?", "help"}, {"q", "quit"},  {"/", "find"}, {"u", "user"},
                                                            {"t", "tree"}, {"<>", "sort"}, {"k", "kill"}};
  int64_t x = 1;
  for (const auto& [key, meaning] : kHints) {
    const auto width = display_width(key) + 1 + display_width(meaning);
    if (x + width > end) return;
    x = canvas.put({x, y}, key, Style::kKey);
    x = canvas.put({x + 1, y}, meaning, Style::kDim) + 3;
  }
}

/// Draws the number of processes at the right edge. Returns the column before it.
int64_t draw_count(Canvas& canvas, const Model& model, int64_t y) {
  const auto list = process_list(model);
  std::string text;
  if (!model.text_filter.empty()) text += fmt::format("\"{}\"  ", fit(printable(model.text_filter), 20));
  if (!model.user_filter.empty()) text += fmt::format("user {}  ", fit(printable(model.user_filter), 16));
  const bool is_filtered = !text.empty();
  const auto kind = list.num_processes == 1 ? "process" : "processes";
  text += is_filtered ? fmt::format("{} of {} {}", list.num_shown, list.num_processes, kind)
                      : fmt::format("{} {}", list.num_processes, kind);
  // A device without a known process list may have more processes.
  if (model.sample->has_processes && !device::unanswered_of(model.sample->snapshot).empty())
    text += ", others not known";
  const auto start = model.size.width - 1 - display_width(text);
  if (start < 12 && !is_filtered) return model.size.width;
  canvas.put({std::max<int64_t>(1, start), y}, text, is_filtered ? Style::kWarning : Style::kDim);
  return start - 2;
}

void draw_footer(Canvas& canvas, const Model& model, int64_t y) {
  const auto width = model.size.width;
  const auto prompt = [&](const char* label, const std::string& text) {
    const auto x = canvas.put({1, y}, label, Style::kKey);
    // If the typed text is too long, its end stays visible.
    auto shown = printable(text);
    while (display_width(shown) > std::max<int64_t>(1, width - x - 2)) shown.erase(0, 1);
    const auto end = canvas.put({x, y}, shown);
    canvas.put({end, y}, " ", Style::kSelected);
    canvas.put({end + 3, y}, "Enter keeps it   Esc takes it back", Style::kDim);
  };
  switch (model.prompt) {
    case Prompt::kText: prompt("find: ", model.text_filter); return;
    case Prompt::kUser: prompt("user: ", model.user_filter); return;
    case Prompt::kKill:
      if (model.asked) {
        const auto signal = model.asked->is_forced ? "SIGKILL" : "SIGTERM";
        const auto question = fmt::format("send {} to {}?", signal, model.asked->what);
        const auto x = canvas.put({1, y}, fit(question, std::max<int64_t>(12, width - 16)), Style::kWarning);
        canvas.put({canvas.put({x + 3, y}, "y", Style::kKey) + 1, y}, "yes", Style::kDim);
        canvas.put({canvas.put({x + 10, y}, "n", Style::kKey) + 1, y}, "no", Style::kDim);
      }
      return;
    case Prompt::kNone: break;
  }
  if (!model.message.text.empty()) {
    canvas.put({1, y}, fit(printable(model.message.text), width - 1), model.message.style);
    return;
  }
  if (!model.sample) return draw_keys(canvas, y, width);
  draw_keys(canvas, y, model.shows_processes ? draw_count(canvas, model, y) : width);
}

}  // namespace

Canvas view(const Model& model) {
  Canvas canvas(model.size);
  if (model.shows_help) {
    draw_help(canvas, model);
  } else {
    const auto layout = layout_of(model);
    if (model.size.height >= 3 || !model.sample) draw_title(canvas, model, layout);
    draw_devices(canvas, model, layout);
    draw_processes(canvas, model, layout);
    if (layout.footer) draw_footer(canvas, model, *layout.footer);
  }
  if (model.glyphs == Glyphs::kAscii) canvas.make_ascii();
  return canvas;
}

std::string plain_page(Model model) {
  model.is_compact = true;
  model.is_plain = true;
  int64_t num_lines = static_cast<int64_t>(process_list(model).rows.size());
  if (model.sample) device::for_each_device(model.sample->snapshot, [&](const auto&, const auto&) { ++num_lines; });
  constexpr int64_t kAround = 20;  // the number of lines for title and headings, and of rows reserved for processes
  model.size.height = num_lines + kAround;
  auto text = view(model).to_text();
  text.erase(text.find_last_not_of('\n') + 1);
  return text + '\n';
}

}  // namespace yoke::tui
