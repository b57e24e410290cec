// yoke/claim/note.h -- what a claim and a waiting request say about themselves: JSON in files of their users.
//
// It is commentary, for people. Anybody can write anything about their own claims, so nothing here decides who holds a
// device, or whose claim it is. Texts may have any bytes: apply printable() before they reach a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::claim {

using Time = std::chrono::system_clock::time_point;  ///< In notes, in whole seconds.

/// What looks at the devices of a claim have found (idle.h).
struct Activity {
  Time looked_at = {};              ///< The last look.
  std::vector<Time> used_at = {};   ///< When each of Note::keys was last seen in activity.
  int64_t idle_device_seconds = 0;  ///< The sum over all devices, since the claim began.

  bool operator==(const Activity&) const = default;
};

/// A claim has no more heirs than this, so that its note stays small.
inline constexpr size_t kMostHeirs = 32;

/// A process that was started under a claim, uses devices of it, and keeps them if the claim's process ends first.
struct Heir {
  int64_t pid = 0, start_ticks = 0;
  std::vector<int64_t> positions = {};  ///< Of its devices in Note::keys.

  bool operator==(const Heir&) const = default;
};

struct Note {
  std::vector<std::string> keys;  ///< Of the devices (Candidate::key).
  int64_t pid = 0;                ///< The process that took the locks.
  int64_t start_ticks = 0;        ///< Of `pid`: together they identify it.
  int64_t program_pid = 0;        ///< The program that the claim is for; 0: there is none.
  int64_t program_start_ticks = 0;
  bool is_holder = false;  ///< `pid` only holds the devices; otherwise it is the parent of the program.
  std::string purpose;     ///< What the user said (--name), or else the program.
  Time since = {};
  std::optional<Time> until = {};
  std::optional<int64_t> share_bytes = {};  ///< Of each device; nullopt: the claim shares its devices with nobody.
  std::optional<Activity> activity = {};    ///< nullopt: nobody looks whether the devices are used.
  std::vector<Heir> heirs = {};             ///< Some may have ended.
  bool is_forced = false;                   ///< `yoke release --force` ends the claim with all of its processes.

  bool operator==(const Note&) const = default;
};

/// A process that may keep a claim. `start_ticks` tells it from a later one with the same number.
struct Keeper {
  int64_t pid = 0, start_ticks = 0;

  bool operator==(const Keeper&) const = default;
};

/// The processes that end the claim when they get SIGTERM: the one that took the locks, which tells all others; or else
/// all heirs; or else the program, which has outlived the former. Empty if none lives. `lives` says whether a process
/// is there and may be meant by this note. Pure.
std::vector<Keeper> keepers_of(const Note& note, const std::function<bool(const Keeper&)>& lives);

std::string to_text(const Note& note);
/// nullopt: `text` is not a note.
std::optional<Note> parse_note(std::string_view text);

/// A request that waits.
struct QueuedRequest {
  int64_t num_devices = 1;
  std::string purpose = {};
  std::optional<std::chrono::seconds> length = {};  ///< For how long, if its user said that.
  std::optional<int64_t> share_bytes = {};          ///< Of each device; nullopt: for itself alone.
  std::vector<std::string> keys = {};               ///< Of the devices that may be given; empty: any.

  bool operator==(const QueuedRequest&) const = default;
};

std::string to_text(const QueuedRequest& request);
std::optional<QueuedRequest> parse_request(std::string_view text);

/// Notes and requests are at most this long; the rest of a longer file is not read.
inline constexpr size_t kMostNoteBytes = 16 << 10;

}  // namespace yoke::claim
