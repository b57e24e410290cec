// yoke/tui/model.h -- the state of the page as a value, and the events that change it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "yoke/device/device.h"
#include "yoke/device/history.h"
#include "yoke/tui/canvas.h"
#include "yoke/tui/graph.h"
#include "yoke/tui/host.h"

namespace yoke::tui {

/// The data that a sampler reads for one page.
struct Sample {
  device::Snapshot snapshot;
  Host host;
  std::map<int64_t, device::ProcessInfo> ancestors;  ///< The parents of processes, by PID, for the tree.
  bool has_processes = true;                         ///< The processes were read.
  bool is_last = false;                              ///< The last sample of a recording.
};

/// Used memory as a share of all memory.
std::optional<double> memory_percent(const device::Readings& readings);

struct DeviceHistory {
  device::History utilization, memory;  ///< Percent.
};

enum class SortBy { kPid, kUser, kDevice, kMemory, kUtilization, kAge };

/// Identifies a process, and differs for a later process with the same PID.
struct ProcessKey {
  int64_t pid = 0;
  std::optional<int64_t> start_ticks;

  bool operator==(const ProcessKey&) const = default;
  bool operator<(const ProcessKey& other) const {
    return std::tie(pid, start_ticks) < std::tie(other.pid, other.start_ticks);
  }
};

struct KillRequest {
  ProcessKey process;
  bool is_forced = false;  ///< If true, SIGKILL is sent instead of SIGTERM.
  std::string what;        ///< "4121 train.py (ada)"
};

/// The purpose of the line that is being typed at the bottom.
enum class Prompt { kNone, kText, kUser, kKill };

struct Message {
  std::string text;
  Style style = Style::kNormal;
  int64_t samples_left = 0;  ///< The message disappears after this many samples.
};

struct Model {
  // Set at the start.
  std::string user;  ///< The user whose processes stand out.
  Glyphs glyphs = Glyphs::kUnicode;
  bool is_readonly = false;
  bool is_recording = false;
  bool is_plain = false;  ///< The page will be printed: it has no keys and no graphs.
  Size size{80, 24};

  // The data that was read.
  std::optional<Sample> sample;
  std::map<std::string, DeviceHistory> histories;  ///< By id, such as "0:1" for a MIG instance.

  // The choices of the user.
  SortBy sort_by = SortBy::kDevice;
  bool is_reversed = false;
  bool is_tree = false;
  bool is_compact = false;  ///< Shows one line for each device even if there is more room.
  bool shows_processes = true;
  bool shows_help = false;
  std::optional<bool> shows_origins;  ///< If unset, they are shown if there is room.
  std::string text_filter, user_filter;

  // The user's position.
  std::optional<ProcessKey> selected;
  std::string selected_device;  ///< The device of the selected row: a process may have several rows.
  int64_t first_row = 0;        ///< First row of the process list that is shown.
  int64_t first_device = 0;     ///< First device that is shown, if not all fit.
  int64_t command_offset = 0;
  int64_t first_help_line = 0;
  Prompt prompt = Prompt::kNone;
  std::string before_prompt;  ///< The filter before the prompt; Escape restores it.
  Message message;

  // Ending processes.
  std::optional<KillRequest> asked;      ///< Waits for the user's "y".
  std::optional<KillRequest> requested;  ///< Confirmed; the app sends the signals and answers with KillAnswer.
  std::set<ProcessKey> terminated;       ///< Processes that got SIGTERM; the next request for them sends SIGKILL.

  bool has_quit = false;
};

// Events.
enum class Key {
  kCharacter,
  kUp,
  kDown,
  kLeft,
  kRight,
  kPageUp,
  kPageDown,
  kHome,
  kEnd,
  kEnter,
  kEscape,
  kBackspace,
  kTab,
  kBackTab
};
struct KeyEvent {
  Key key = Key::kCharacter;
  std::string text;  ///< The character, in UTF-8.
};
struct MouseEvent {
  enum class What { kClick, kWheelUp, kWheelDown };
  What what = What::kClick;
  Point at;
};
struct ResizeEvent {
  Size size;
};
struct SampleEvent {
  Sample sample;
};
struct KillAnswer {
  KillRequest request;
  std::string error;  ///< Empty if the signal was sent.
};
using Event = std::variant<KeyEvent, MouseEvent, ResizeEvent, SampleEvent, KillAnswer>;

/// Returns the model after `event`. Pure.
Model update(Model model, const Event& event);

/// The data that must be read for the page in its present state. want_of() is pure.
struct WantOfPage {
  device::Want devices;
  bool ancestors = false;
};
WantOfPage want_of(const Model& model);

}  // namespace yoke::tui
