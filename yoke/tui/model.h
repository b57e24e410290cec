// yoke/tui/model.h -- the state of the page as a value, and the events that change it.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "yoke/device/device.h"
#include "yoke/device/history.h"
#include "yoke/tui/canvas.h"
#include "yoke/tui/graph.h"
#include "yoke/view/claims.h"

namespace yoke::tui {

/// What the title shows of the machine. (The CPU is a device instead.) Values that cannot be read are nullopt.
struct Host {
  std::optional<std::array<double, 3>> load;  ///< Averages over 1, 5 and 15 minutes.
  std::optional<int64_t> swap_total_bytes, swap_used_bytes;

  bool operator==(const Host&) const = default;
};

/// The data that a sampler reads for one page.
struct Sample {
  device::Snapshot snapshot;
  Host host;
  std::map<int64_t, device::ProcessInfo> ancestors;  ///< The ancestors of the listed processes, by PID, for the tree.
  std::vector<view::ClaimRow> claims;                ///< Who has claimed which device.
  bool has_processes = true;                         ///< Whether the processes were read.
  bool is_last = false;                              ///< Whether this is the last sample of a recording.
};

/// Returns used memory as a percentage of all memory.
std::optional<double> memory_percent(const device::Readings& readings);

struct DeviceHistory {
  device::History utilization, memory;  ///< Percent.
};

enum class SortBy { kPid, kUser, kDevice, kMemory, kUtilization, kAge };

/// Identifies a process. A later process with the same PID has a different key.
struct ProcessKey {
  int64_t pid = 0;
  std::optional<int64_t> start_ticks;

  auto operator<=>(const ProcessKey&) const = default;
};

struct KillRequest {
  ProcessKey process;
  bool is_forced = false;  ///< If true, SIGKILL is sent instead of SIGTERM.
  std::string what;        ///< "4121 train.py (ada)"
};

/// What the user is typing at the bottom of the page.
enum class Prompt { kNone, kText, kUser, kKill };

struct Message {
  std::string text;
  Style style = Style::kNormal;
  int64_t samples_left = 0;  ///< The message disappears after this number of samples.
};

struct Model {
  // Set at the start.
  std::string user;  ///< The user whose processes are emphasised.
  Glyphs glyphs = Glyphs::kUnicode;
  bool is_readonly = false;
  bool is_recording = false;
  bool is_plain = false;  ///< Whether the page will be printed. It then has no keys and no graphs.
  Size size{80, 24};

  // The data that was read.
  std::optional<Sample> sample;
  std::map<std::string, DeviceHistory> histories;  ///< By id, such as "0:1" for a MIG instance.

  // The user's choices.
  SortBy sort_by = SortBy::kDevice;
  bool is_reversed = false;
  bool is_tree = false;
  bool is_compact = false;  ///< Whether each device has one line even if there is more room.
  bool shows_processes = true;
  bool shows_help = false;
  std::optional<bool> shows_origins;  ///< If unset, origins are shown if there is room.
  std::string text_filter, user_filter;

  // The selection and the scroll positions.
  std::optional<ProcessKey> selected;
  std::string selected_device;  ///< The device of the selected row. (A process may have several rows.)
  int64_t first_row = 0;        ///< The first visible row of the process list.
  int64_t first_device = 0;     ///< The first visible device if not all fit.
  int64_t command_offset = 0;
  int64_t first_help_line = 0;
  Prompt prompt = Prompt::kNone;
  std::string before_prompt;  ///< The filter before the prompt opened; Escape restores it.
  Message message;

  // Ending processes.
  std::optional<KillRequest> asked;      ///< A request that waits for the user's "y".
  std::optional<KillRequest> requested;  ///< Confirmed. The app sends the signals and answers with KillAnswer.
  std::set<ProcessKey> terminated;       ///< Processes that got SIGTERM. The next request for them sends SIGKILL.

  bool has_quit = false;
};

// Events.
enum class Key { kCharacter, kUp, kDown, kLeft, kRight, kPageUp, kPageDown, kHome, kEnd, kEnter, kEscape, kBackspace };
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
