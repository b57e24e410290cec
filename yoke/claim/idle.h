// yoke/claim/idle.h -- for how long the devices of a claim have been idle, and what follows from it. Pure.
//
// A device is used when a process other than graphics is on it and it is not at 0 %. A notebook that keeps memory and
// computes nothing is therefore idle. Whoever keeps a claim looks at its devices from time to time, and writes into the
// note when each of them was seen in activity. What cannot be read counts as used.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/claim/note.h"
#include "yoke/device/device.h"

namespace yoke::claim {

/// Whether a device or MIG instance is used now; nullopt: the driver does not tell.
std::optional<bool> is_used(const device::Device& device);

/// For each id ("3", "0:1"), whether that device of the snapshot is used.
std::vector<std::optional<bool>> uses_by_id(const device::Snapshot& snapshot, const std::vector<std::string>& ids);

/// The use after one more look at the devices. `used` has an entry for each of Note::keys.
Activity after_look(const Note& note, const std::vector<std::optional<bool>>& used, Time now);

/// For how long a device of the note has been idle; nullopt: nobody has looked lately, so it is not known.
std::optional<std::chrono::seconds> idle_time(const Note& note, const std::string& key, Time now);

/// When a site warns about a claim of which all devices are idle, and when it ends it.
struct IdleLimits {
  std::optional<std::chrono::seconds> warn, end;

  bool operator==(const IdleLimits&) const = default;
};

/// The time between two looks. Short limits need more looks.
std::chrono::milliseconds look_interval(const IdleLimits& limits);

enum class IdleStep { kNone, kWarn, kEnd };

/// Tells once that a claim has been idle for too long. It measures by a clock that nobody sets.
class IdleWatch {
 public:
  IdleWatch(const IdleLimits& limits, Clock::time_point now) : limits_(limits), used_at_(now) {}

  /// Call this after a look that found a device in use, or that could not tell.
  void note_use(Clock::time_point now);
  IdleStep step(Clock::time_point now);
  std::chrono::seconds idle_for(Clock::time_point now) const;

 private:
  IdleLimits limits_;
  Clock::time_point used_at_;
  bool is_warned_ = false, is_ended_ = false;
};

}  // namespace yoke::claim
