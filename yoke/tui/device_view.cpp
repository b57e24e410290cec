// Draws the devices, each as a line or a block.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "yoke/tui/view.h"
#include "yoke/view/labels.h"

namespace yoke::tui {
namespace {

using device::Device;
using device::State;
using device::Vendor;

std::string gib(int64_t bytes) {
  const auto value = view::to_gib(bytes);
  return value < 999.95 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

std::string memory_text(const device::Readings& readings) {
  if (!readings.memory_used_bytes) return view::kUnknown;
  if (!readings.memory_total_bytes) return gib(*readings.memory_used_bytes);
  return gib(*readings.memory_used_bytes) + "/" + gib(*readings.memory_total_bytes);
}

std::string power_text(const device::Readings& readings) {
  if (!readings.power_mw) return "";
  if (!readings.power_limit_mw) return fmt::format("{}W", view::to_watts(*readings.power_mw));
  return fmt::format("{}/{}W", view::to_watts(*readings.power_mw), view::to_watts(*readings.power_limit_mw));
}

std::string temperature_text(const device::Readings& readings, Glyphs glyphs) {
  if (!readings.temperature_celsius) return "";
  return fmt::format("{}{}C", *readings.temperature_celsius, glyphs == Glyphs::kAscii ? " " : "°");
}

Style temperature_style(const Device& device) {
  if (!device.readings.temperature_celsius) return Style::kDim;
  constexpr int64_t kUsualSlowdown = 95, kNear = 8;
  const auto slowdown = device.facts.temperature_slowdown_celsius.value_or(kUsualSlowdown);
  const auto temperature = *device.readings.temperature_celsius;
  return temperature >= slowdown ? Style::kBad : temperature >= slowdown - kNear ? Style::kWarning : Style::kNormal;
}

/// Returns why the clocks are slow, without normal reasons such as an idle device.
std::string slowed_by(const device::Readings& readings) {
  std::vector<std::string> reasons;
  for (const auto& reason : readings.throttle_reasons.value_or(std::vector<std::string>{})) {
    if (reason != "idle" && reason != "application clocks" && reason != "display clocks") reasons.push_back(reason);
  }
  return fmt::format("{}", fmt::join(reasons, ", "));
}

std::string state_text(const Device& device) {
  std::string text(name(device.state));
  return device.reason.empty() ? text : text + ": " + device.reason;
}

Style state_style(const Device& device) {
  switch (device.state) {
    case State::kFree: return Style::kGood;
    case State::kBusy: return Style::kNormal;
    case State::kLost:
    case State::kError: return Style::kBad;
    case State::kNoAnswer:
    case State::kNoPermission:
    case State::kUnknown:
    case State::kUnusable: return Style::kWarning;
  }
  return Style::kNormal;
}

/// Returns the users of the device, ordered by memory, or its state if it has none. REQUIRES: the processes were read.
std::string use_text(const Device& device) {
  const auto text = fmt::format("{}", fmt::join(view::users_of(device), ","));
  return text.empty() && device.vendor != Vendor::kCpu ? std::string(name(device.state)) : text;
}

Style use_style(const Device& device) {
  return device.state == State::kFree && device.vendor != Vendor::kCpu ? Style::kGood : Style::kNormal;
}

std::string cpus_text(const device::Facts& facts) {
  if (!facts.num_cpus) return "";
  if (!facts.num_allowed_cpus || facts.num_allowed_cpus == facts.num_cpus)
    return fmt::format("{} CPUs", *facts.num_cpus);
  return fmt::format("{} of {} CPUs", *facts.num_allowed_cpus, *facts.num_cpus);
}

const DeviceHistory& history_of(const Model& model, const std::string& id) {
  static const DeviceHistory kNone;
  const auto found = model.histories.find(id);
  return found == model.histories.end() ? kNone : found->second;
}

struct Span {
  int64_t x = 0, width = 0;
};

/// The positions of the parts of a device's line. A part of width 0 is left out.
struct LineFields {
  Span id, name, utilization_bar, percent, memory_bar, memory, temperature, power, clock, use, claim, graph;
};

LineFields line_fields(int64_t width, int64_t id_width, const Model& model) {
  LineFields fields;
  const auto from = [&](int64_t at_least, int64_t wanted) { return width >= at_least ? wanted : 0; };
  // On a narrow terminal, memory and users stay. First the name is shortened, then temperature and power are left out.
  fields.id.width = id_width;
  fields.name.width = width >= 140 ? 22 : width >= 100 ? 18 : width >= 80 ? 14 : width >= 60 ? 9 : 0;
  fields.percent.width = from(16, 4);
  fields.memory.width = width >= 36 ? 11 : from(22, 5);
  fields.temperature.width = from(50, 4);
  fields.power.width = width >= 80 ? 10 : from(70, 5);
  fields.use.width = width >= 130 ? 16 : width >= 60 ? 10 : from(32, 7);
  fields.clock.width = shows_clocks(model) ? from(130, 7) : 0;
  const bool is_any_claimed = model.sample && !model.sample->claims.empty();
  fields.claim.width = !is_any_claimed ? 0 : width >= 130 ? 20 : from(80, 8);
  fields.graph.width = model.is_plain ? 0 : width >= 150 ? 24 : from(120, 12);
  const std::array in_order = {&fields.id,         &fields.name,   &fields.utilization_bar, &fields.percent,
                               &fields.memory_bar, &fields.memory, &fields.temperature,     &fields.power,
                               &fields.clock,      &fields.use,    &fields.claim,           &fields.graph};
  int64_t used = 1;
  for (const auto* span : in_order) used += span->width > 0 ? span->width + 1 : 0;
  const auto bar = (width - used - 2) / 2;
  if (bar >= 3) {
    fields.utilization_bar.width = fields.memory_bar.width = std::min<int64_t>(bar, 40);
  }
  int64_t x = 1;
  for (auto* span : in_order) {
    span->x = x;
    if (span->width > 0) x += span->width + 1;
  }
  return fields;
}

class DeviceView {
 public:
  DeviceView(Canvas& canvas, const Model& model, const Layout& layout)
      : canvas_(canvas), model_(model), id_width_(layout.id_width) {}

  void draw_heading(int64_t x, int64_t y, int64_t width) const {
    const auto fields = fields_for(width);
    canvas_.put({x, y}, std::string(static_cast<size_t>(width), ' '), Style::kHeading);
    const auto title = [&](const Span& span, const char* text, Align align) {
      put(span, x, y, text, align, Style::kHeading);
    };
    title(fields.id, "#", Align::kRight);
    title(fields.name, "DEVICE", Align::kLeft);
    title({fields.utilization_bar.x, fields.utilization_bar.width + 1 + fields.percent.width}, "UTILIZATION",
          Align::kLeft);
    title({fields.memory_bar.x, fields.memory_bar.width + 1 + fields.memory.width}, "MEMORY GiB", Align::kLeft);
    title(fields.temperature, "TEMP", Align::kRight);
    title(fields.power, "POWER", Align::kRight);
    title(fields.clock, "CLOCK", Align::kRight);
    title(fields.use, "USERS", Align::kLeft);
    title(fields.claim, "CLAIM", Align::kLeft);
    title(fields.graph, "HISTORY", Align::kLeft);
  }

  void draw(const DevicePlace& place) const {
    if (place.rect.height <= 1) {
      draw_line(place);
    } else {
      draw_block(place);
    }
  }

 private:
  LineFields fields_for(int64_t width) const { return line_fields(width, id_width_, model_); }

  void put(const Span& span, int64_t x, int64_t y, std::string_view text, Align align, Style style) const {
    if (span.width > 0) canvas_.put({x + span.x, y}, pad(printable(text), span.width, align), style);
  }

  void draw_line(const DevicePlace& place) const {
    const auto& device = *place.device;
    const auto& readings = device.readings;
    const auto fields = fields_for(place.rect.width);
    const auto x = place.rect.x, y = place.rect.y;
    put(fields.id, x, y, place.id, Align::kRight, Style::kStrong);
    put(fields.name, x, y, view::short_name(device), Align::kLeft, Style::kNormal);
    if (!is_answering(device)) {
      const auto start = x + fields.utilization_bar.x;
      canvas_.put({start, y}, fit(printable(state_text(device)), x + place.rect.width - start), state_style(device));
      return;
    }
    draw_bar(canvas_, {x + fields.utilization_bar.x, y},
             {fields.utilization_bar.width, readings.utilization_percent, Style::kUtilization}, model_.glyphs);
    put(fields.percent, x, y, view::percent_text(readings.utilization_percent), Align::kRight, Style::kNormal);
    draw_bar(canvas_, {x + fields.memory_bar.x, y}, {fields.memory_bar.width, memory_percent(readings), Style::kMemory},
             model_.glyphs);
    const bool is_narrow = fields.memory.width < 11;
    put(fields.memory, x, y,
        is_narrow && readings.memory_used_bytes ? gib(*readings.memory_used_bytes) : memory_text(readings),
        Align::kRight, Style::kNormal);
    put(fields.temperature, x, y, temperature_text(readings, model_.glyphs), Align::kRight, temperature_style(device));
    const bool has_limit = fields.power.width >= 10 || !readings.power_mw;
    put(fields.power, x, y, has_limit ? power_text(readings) : fmt::format("{}W", view::to_watts(*readings.power_mw)),
        Align::kRight, Style::kNormal);
    if (readings.clock_sm_mhz) {
      put(fields.clock, x, y, fmt::format("{}MHz", *readings.clock_sm_mhz), Align::kRight,
          slowed_by(readings).empty() ? Style::kNormal : Style::kWarning);
    }
    if (model_.sample->has_processes) put(fields.use, x, y, use_text(device), Align::kLeft, use_style(device));
    put(fields.claim, x, y, claim_of(place.id, fields.claim.width > 8), Align::kLeft, claim_style(place.id));
    draw_graph(canvas_, {x + fields.graph.x, y, fields.graph.width, 1}, history_of(model_, place.id).utilization,
               {Style::kUtilization}, model_.glyphs);
  }

  struct Part {
    std::string text;
    Style style = Style::kNormal;
    int64_t importance = 0;  ///< If not all parts fit, parts with smaller numbers are shown.
  };
  static constexpr int64_t kBetweenParts = 3;

  /// Returns the most important `parts` that fit into `room` together, in their original order.
  static std::vector<Part> fitting(std::vector<Part> parts, int64_t room) {
    std::erase_if(parts, [](const Part& part) { return part.text.empty(); });
    const auto width_of = [](const std::vector<Part>& all) {
      int64_t width = 0;
      for (const auto& part : all) width += display_width(part.text) + kBetweenParts;
      return width;
    };
    while (!parts.empty() && width_of(parts) > room) {
      parts.erase(
          std::ranges::max_element(parts, [](const Part& a, const Part& b) { return a.importance < b.importance; }));
    }
    return parts;
  }

  /// Draws the parts right-aligned in line `y`. Returns the column at which they begin.
  int64_t draw_parts(const std::vector<Part>& parts, int64_t right, int64_t y) const {
    auto start = right;
    for (const auto& part : parts) {
      start = right - display_width(part.text);
      canvas_.put({start, y}, part.text, part.style);
      right = start - kBetweenParts;
    }
    return start;
  }

  std::string claim_of(const std::string& id, bool with_idle) const {
    return printable(view::claim_text(model_.sample->claims, id, with_idle));
  }

  /// A claim that nobody uses stands out.
  Style claim_style(const std::string& id) const {
    constexpr std::chrono::minutes kLong(10);
    const auto& claims = model_.sample->claims;
    const bool is_idle = std::any_of(claims.begin(), claims.end(), [&](const view::ClaimRow& row) {
      return row.id == id && row.idle.value_or(std::chrono::seconds(0)) >= kLong;
    });
    return is_idle ? Style::kWarning : Style::kNormal;
  }

  std::vector<Part> parts_of(const Device& device, const std::string& id) const {
    const auto& readings = device.readings;
    const auto slowed = slowed_by(readings);
    const auto slowed_style =
        slowed.find("slowdown") != slowed.npos || slowed.find("brake") != slowed.npos ? Style::kBad : Style::kWarning;
    std::string clocks;
    if (readings.clock_sm_mhz) clocks = fmt::format("{} MHz", *readings.clock_sm_mhz);
    if (readings.clock_sm_mhz && device.facts.clock_sm_max_mhz) {
      clocks = fmt::format("{}/{} MHz", *readings.clock_sm_mhz, *device.facts.clock_sm_max_mhz);
    }
    if (device.vendor == Vendor::kCpu) {
      return {{temperature_text(readings, model_.glyphs), temperature_style(device), 0},
              {power_text(readings), Style::kNormal, 1},
              {cpus_text(device.facts), Style::kDim, 2}};
    }
    const auto claim = claim_of(id, true);
    return {{temperature_text(readings, model_.glyphs), temperature_style(device), 1},
            {power_text(readings), Style::kNormal, 2},
            {model_.sample->has_processes ? fit(printable(use_text(device)), 24) : "", use_style(device), 0},
            {claim.empty() ? "" : fit("claim: " + claim, 36), claim_style(id), 1},
            {printable(slowed), slowed_style, 3},
            {clocks, Style::kNormal, 4}};
  }

  /// Draws two halves, utilisation and memory, each with a bar above its history.
  void draw_block(const DevicePlace& place) const {
    const auto& device = *place.device;
    const auto& readings = device.readings;
    const auto x = place.rect.x, y = place.rect.y, width = place.rect.width;
    put({1, id_width_}, x, y, place.id, Align::kRight, Style::kStrong);
    const auto indent = id_width_ + 2;
    const auto title = printable(view::short_name(device));
    constexpr int64_t kShortName = 9;  // the users of a device are more important than its full name
    const auto room = width - indent - 1 - std::min(display_width(title), kShortName);
    const auto parts = is_answering(device) ? fitting(parts_of(device, place.id), room) : std::vector<Part>();
    const auto title_end = parts.empty() ? x + width : draw_parts(parts, x + width - 1, y) - 1;
    canvas_.put({x + indent, y}, fit(title, title_end - x - indent), Style::kStrong);

    constexpr int64_t kPercent = 6, kMemory = 16, kBetween = 2;
    const auto left_width = (width - indent - kBetween) / 2 - 4;
    const auto right_width = width - indent - kBetween - left_width - 1;
    const auto left = x + indent, right = left + left_width + kBetween;
    const auto left_bar = left_width - kPercent, right_bar = right_width - kMemory;
    if (is_answering(device)) {
      draw_bar(canvas_, {left, y + 1}, {left_bar, readings.utilization_percent, Style::kUtilization}, model_.glyphs);
      put({0, kPercent}, left + left_bar, y + 1, view::percent_text(readings.utilization_percent), Align::kRight,
          Style::kNormal);
      draw_bar(canvas_, {right, y + 1}, {right_bar, memory_percent(readings), Style::kMemory}, model_.glyphs);
      const auto memory = readings.memory_used_bytes ? memory_text(readings) + " GiB" : "-";
      put({0, kMemory}, right + right_bar, y + 1, memory, Align::kRight, Style::kNormal);
    } else {
      canvas_.put({left, y + 1}, fit(printable(state_text(device)), width - indent), state_style(device));
    }
    const auto& history = history_of(model_, place.id);  // a device that does not answer still has a history
    const auto height = place.rect.height - 2;
    draw_graph(canvas_, {left, y + 2, left_bar, height}, history.utilization, {Style::kUtilization}, model_.glyphs);
    draw_graph(canvas_, {right, y + 2, right_bar, height}, history.memory,
               {.style = Style::kMemory, .is_filled = false}, model_.glyphs);
  }

  Canvas& canvas_;
  const Model& model_;
  int64_t id_width_;
};

}  // namespace

void draw_devices(Canvas& canvas, const Model& model, const Layout& layout) {
  const DeviceView view(canvas, model, layout);
  for (const auto& place : layout.devices) {
    if (layout.device_heading && place.rect.y == *layout.device_heading + 1) {
      view.draw_heading(place.rect.x, *layout.device_heading, place.rect.width);
    }
    view.draw(place);
  }
  if (layout.note) {
    const auto missing = view::find_missing_gpu(model.sample->snapshot);
    const auto note = missing ? printable(missing->text()) : std::string();
    canvas.put({1, *layout.note}, fit(note, model.size.width - 1), Style::kDim);
  }
}

}  // namespace yoke::tui
