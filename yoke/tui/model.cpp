#include "yoke/tui/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "yoke/base/text.h"
#include "yoke/tui/layout.h"
#include "yoke/tui/processes.h"
#include "yoke/tui/view.h"

namespace yoke::tui {
namespace {

constexpr int64_t kMessageSamples = 6;

void say(Model& model, std::string text, Style style = Style::kNormal) {
  model.message = {std::move(text), style, kMessageSamples};
}

// The process list.

void select(Model& model, const ProcessRow& row) {
  model.selected = row.key;
  model.selected_device = row.device;
}

int64_t list_height(const Model& model) { return std::max<int64_t>(1, layout_of(model).processes.height); }

void scroll_to(Model& model, int64_t first_row, int64_t num_rows) {
  model.first_row = std::clamp<int64_t>(first_row, 0, std::max<int64_t>(0, num_rows - list_height(model)));
}

/// Scrolls the list so that the selected row is visible. Clears the selection if the row no longer exists.
void show_selected(Model& model) {
  const auto rows = process_list(model).rows;
  auto first = model.first_row;
  if (const auto row = selected_row(model, rows)) {
    first = std::clamp(first, *row - list_height(model) + 1, *row);
  } else {
    model.selected.reset();
  }
  scroll_to(model, first, static_cast<int64_t>(rows.size()));
}

bool is_selection_in_sight(const Model& model) {
  if (!model.selected) return false;
  const auto row = selected_row(model, process_list(model).rows);
  return row && *row >= model.first_row && *row < model.first_row + list_height(model);
}

/// Moves the selection by `distance` rows. Without a selection, starts just outside of the visible rows.
void move_selection(Model& model, int64_t distance) {
  const auto rows = process_list(model).rows;
  if (rows.empty()) return;
  const auto last = static_cast<int64_t>(rows.size()) - 1;
  const auto current = selected_row(model, rows);
  const auto wanted = current.value_or(distance > 0 ? model.first_row - 1 : last + 1) + distance;
  select(model, rows[static_cast<size_t>(std::clamp<int64_t>(wanted, 0, last))]);
  show_selected(model);
}

void scroll_devices(Model& model, int64_t distance) {
  model.first_device = std::max<int64_t>(0, layout_of(model).first_device + distance);
  model.first_device = layout_of(model).first_device;
}

void sort(Model& model, SortBy by) {
  if (model.sort_by == by) {
    model.is_reversed = !model.is_reversed;
  } else {
    model.sort_by = by;
    model.is_reversed = false;
  }
  model.first_row = 0;
  show_selected(model);
}

/// Sorts by the next visible column in direction `step` that can be sorted.
void sort_beside(Model& model, int step) {
  std::vector<SortBy> shown;
  for (const auto& column : process_columns(model)) {
    if (column.sort_by) shown.push_back(*column.sort_by);
  }
  if (shown.empty()) return;
  const auto found = std::ranges::find(shown, model.sort_by) - shown.begin();
  const auto wanted = std::clamp<int64_t>(found + step, 0, static_cast<int64_t>(shown.size()) - 1);
  if (shown[static_cast<size_t>(wanted)] != model.sort_by) sort(model, shown[static_cast<size_t>(wanted)]);
}

bool shows_origins(const Model& model) {
  const auto columns = process_columns(model);
  const auto is_origin = [](const ProcessColumn& column) { return column.field == ProcessField::kOrigin; };
  return std::ranges::any_of(columns, is_origin);
}

// Ending a process.

void ask_to_kill(Model& model) {
  if (model.is_recording) return say(model, "these processes are of a recording", Style::kWarning);
  if (model.is_readonly) return say(model, "no process is ended: started with --readonly", Style::kWarning);
  const auto rows = process_list(model).rows;
  const auto number = selected_row(model, rows);
  if (!number) return say(model, "choose a process first: Up, Down or a click", Style::kWarning);
  const auto& row = rows[static_cast<size_t>(*number)];
  if (!row.is_visible || !row.key.start_ticks) {
    return say(model, fmt::format("{} cannot be ended from here: {}", row.key.pid, row.command), Style::kWarning);
  }
  model.asked = KillRequest{row.key, model.terminated.contains(row.key), describe(row)};
  model.prompt = Prompt::kKill;
}

void answer_kill_question(Model& model, const KeyEvent& event) {
  model.prompt = Prompt::kNone;
  const auto asked = std::exchange(model.asked, std::nullopt);
  if (event.text == "y" || event.text == "Y") {
    model.requested = asked;
  } else {
    say(model, "nothing was sent");
  }
}

void note_answer(Model& model, const KillAnswer& answer) {
  model.requested.reset();
  const auto& request = answer.request;
  if (!answer.error.empty()) return say(model, answer.error, Style::kBad);
  if (request.is_forced) return say(model, fmt::format("sent SIGKILL to {}", request.what));
  model.terminated.insert(request.process);
  say(model, fmt::format("sent SIGTERM to {}; k again sends SIGKILL", request.what));
}

// The prompt.

void type(Model& model, const KeyEvent& event) {
  auto& text = model.prompt == Prompt::kText ? model.text_filter : model.user_filter;
  constexpr size_t kLongest = 200;
  switch (event.key) {
    case Key::kEnter: model.prompt = Prompt::kNone; break;
    case Key::kEscape:
      text = model.before_prompt;
      model.prompt = Prompt::kNone;
      break;
    case Key::kBackspace:
      while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) text.pop_back();
      if (!text.empty()) text.pop_back();
      break;
    case Key::kCharacter:
      if (text.size() < kLongest) text += printable(event.text);
      break;
    default: return;
  }
  model.first_row = 0;
  show_selected(model);
}

void start_prompt(Model& model, Prompt prompt) {
  if (!model.shows_processes) return;
  model.prompt = prompt;
  model.before_prompt = prompt == Prompt::kText ? model.text_filter : model.user_filter;
}

void escape(Model& model) {
  if (model.selected) {
    model.selected.reset();
  } else {
    model.text_filter.clear();
    model.user_filter.clear();
  }
  model.command_offset = 0;
}

void press_character(Model& model, char character) {
  switch (character) {
    case 'q':
    case 'Q': model.has_quit = true; break;
    case '?':
    case 'h':
      model.shows_help = true;
      model.first_help_line = 0;
      break;
    case '/':
    case 'f': start_prompt(model, Prompt::kText); break;
    case 'u': start_prompt(model, Prompt::kUser); break;
    case 'm': model.user_filter = model.user_filter == model.user ? "" : model.user; break;
    case 't': model.is_tree = !model.is_tree; break;
    case 'o': model.shows_origins = !shows_origins(model); break;
    case 'c': model.is_compact = !model.is_compact; break;
    case 'p': model.shows_processes = !model.shows_processes; break;
    case 'r': model.is_reversed = !model.is_reversed; break;
    case 'k': ask_to_kill(model); break;
    case '<':
    case ',': sort_beside(model, -1); break;
    case '>':
    case '.': sort_beside(model, 1); break;
    case '[': scroll_devices(model, -4); break;
    case ']': scroll_devices(model, 4); break;
    case 'N': sort(model, SortBy::kPid); break;
    case 'U': sort(model, SortBy::kUser); break;
    case 'D': sort(model, SortBy::kDevice); break;
    case 'M': sort(model, SortBy::kMemory); break;
    case 'P': sort(model, SortBy::kUtilization); break;
    case 'A': sort(model, SortBy::kAge); break;
    default: break;
  }
  show_selected(model);
}

void press_in_help(Model& model, const KeyEvent& event) {
  const auto last = std::max<int64_t>(0, num_help_lines() - model.size.height + 1);
  if (event.key == Key::kDown || event.key == Key::kPageDown) {
    model.first_help_line =
        std::min(last, model.first_help_line + (event.key == Key::kDown ? 1 : model.size.height - 1));
  } else if (event.key == Key::kUp || event.key == Key::kPageUp) {
    model.first_help_line -= event.key == Key::kUp ? 1 : model.size.height - 1;
    model.first_help_line = std::max<int64_t>(0, model.first_help_line);
  } else {
    model.shows_help = false;
    if (event.text == "q") model.has_quit = true;
  }
}

void press(Model& model, const KeyEvent& event) {
  if (model.shows_help) return press_in_help(model, event);
  if (model.prompt == Prompt::kKill) return answer_kill_question(model, event);
  if (model.prompt != Prompt::kNone) return type(model, event);
  model.message = {};
  const auto page = list_height(model);
  constexpr int64_t kFar = int64_t{1} << 40;
  constexpr int64_t kCommandStep = 8, kLongestCommand = 10'000;
  switch (event.key) {
    case Key::kUp: return move_selection(model, -1);
    case Key::kDown: return move_selection(model, 1);
    case Key::kPageUp: return move_selection(model, -page);
    case Key::kPageDown: return move_selection(model, page);
    case Key::kHome: return move_selection(model, -kFar);
    case Key::kEnd: return move_selection(model, kFar);
    case Key::kLeft: model.command_offset = std::max<int64_t>(0, model.command_offset - kCommandStep); return;
    case Key::kRight: model.command_offset = std::min(kLongestCommand, model.command_offset + kCommandStep); return;
    case Key::kEscape: return escape(model);
    case Key::kCharacter:
      if (event.text.size() == 1) press_character(model, event.text[0]);
      return;
    default: return;
  }
}

void point(Model& model, const MouseEvent& event) {
  if (model.shows_help)
    return press_in_help(model, {event.what == MouseEvent::What::kWheelDown ? Key::kDown
                                 : event.what == MouseEvent::What::kWheelUp ? Key::kUp
                                                                            : Key::kEscape,
                                 ""});
  if (model.prompt != Prompt::kNone) return;
  const auto layout = layout_of(model);
  if (event.what != MouseEvent::What::kClick) {
    constexpr int64_t kStep = 3;
    const auto step = event.what == MouseEvent::What::kWheelUp ? -kStep : kStep;
    const bool is_on_devices = !layout.process_heading || event.at.y < *layout.process_heading;
    if (is_on_devices) return scroll_devices(model, step);
    return scroll_to(model, model.first_row + step, static_cast<int64_t>(process_list(model).rows.size()));
  }
  model.message = {};
  if (layout.process_heading == event.at.y) {
    for (const auto& column : layout.columns) {
      if (column.sort_by && event.at.x >= column.x && event.at.x <= column.x + column.width) {
        return sort(model, *column.sort_by);
      }
    }
  }
  if (!layout.processes.contains(event.at)) return;
  const auto rows = process_list(model).rows;
  const auto number = model.first_row + event.at.y - layout.processes.y;
  if (number < static_cast<int64_t>(rows.size())) select(model, rows[static_cast<size_t>(number)]);
}

// New samples.

void remember(Model& model) {
  const auto& snapshot = model.sample->snapshot;
  device::for_each_device(snapshot, [&](const device::Device& device, const std::string& id) {
    auto& history = model.histories[id];
    if (!history.memory.samples().empty() && history.memory.samples().back().time == snapshot.time) return;
    history.utilization.push(snapshot.time, device.readings.utilization_percent);
    history.memory.push(snapshot.time, memory_percent(device.readings));
  });
}

void take_sample(Model& model, const Sample& sample) {
  const bool was_in_sight = is_selection_in_sight(model);
  model.sample = sample;
  remember(model);
  if (model.message.samples_left > 0 && --model.message.samples_left == 0) model.message = {};
  if (was_in_sight) return show_selected(model);  // otherwise the list stays where the user has scrolled
  const auto rows = process_list(model).rows;
  if (!selected_row(model, rows)) model.selected.reset();
  scroll_to(model, model.first_row, static_cast<int64_t>(rows.size()));
}

}  // namespace

std::optional<double> memory_percent(const device::Readings& readings) {
  if (!readings.memory_used_bytes || readings.memory_total_bytes.value_or(0) <= 0) return std::nullopt;
  return 100.0 * static_cast<double>(*readings.memory_used_bytes) / static_cast<double>(*readings.memory_total_bytes);
}

Model update(Model model, const Event& event) {
  struct Visitor {
    Model& model;
    void operator()(const KeyEvent& key) const { press(model, key); }
    void operator()(const MouseEvent& mouse) const { point(model, mouse); }
    void operator()(const ResizeEvent& resize) const {
      model.size = resize.size;
      show_selected(model);
    }
    void operator()(const SampleEvent& event) const { take_sample(model, event.sample); }
    void operator()(const KillAnswer& answer) const { note_answer(model, answer); }
  };
  std::visit(Visitor{model}, event);
  return model;
}

WantOfPage want_of(const Model& model) {
  WantOfPage want;
  want.devices.processes = false;
  want.devices.details = shows_clocks(model);
  for (const auto& column : process_columns(model)) {
    want.devices.processes = true;
    want.devices.origins |= column.field == ProcessField::kOrigin;
    want.devices.process_utilization |= column.field == ProcessField::kUtilization;
  }
  want.ancestors = want.devices.processes && model.is_tree;
  return want;
}

}  // namespace yoke::tui
