// yoke/claim/turns.h -- keeps one user's requests, real or forged, from holding back everybody else.
//
// The files of the queue say who waits, since when, and for what, and a user can write as many as he likes. What
// happens, nobody can forge: who has got devices, and who did not take them although they were free. So each process
// that waits remembers what it has seen itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "yoke/claim/ledger.h"
#include "yoke/claim/limits.h"

namespace yoke::claim {

/// A request whose turn it is, and that does not take devices which are free for so long, holds back nobody any more.
/// Whoever waits keeps the drivers open and starts within milliseconds; GPUs that wake take up to ten seconds.
inline constexpr std::chrono::seconds kTurnPatience(15);

/// Users take turns: the first requests of all users come before the second ones, and so on; of these, the one that
/// has waited for longest since its user last got devices (`started`). For users with one request each, that is the
/// order of their arrival. REQUIRES: `tickets` are in that order. Pure.
void put_in_turns(std::vector<Ticket>& tickets, const std::map<int64_t, Time>& started);

/// When each user last got devices, as the notes say; for people. Pure.
std::map<int64_t, Time> starts_in_notes(const Survey& survey, Time now);

/// Requests of other users than `uid` that could not start whatever others give back hold back nobody: they want more
/// than the machine has, or than it has beside what their user holds himself. Pure.
void leave_out_impossible(Survey& survey, int64_t uid, int64_t num_devices);

/// What a process that waits has seen since it joined the queue.
class QueueMemory {
 public:
  using Steady = std::chrono::steady_clock::time_point;

  /// Notices who has got devices. Call it at each look.
  void look(const Survey& survey, Time now);
  const std::map<int64_t, Time>& started() const { return started_; }

  /// What a look is based on: free locks, or also what the drivers say.
  enum class Basis { kLocks, kDrivers };
  /// Leaves out the requests of users who did not take their turn, and notices if that is so of the first one in line.
  /// `free_keys`: devices that this request may have, and that are free. Only drivers prove that a device is free;
  /// until then a request is passed by for this look alone. REQUIRES: Survey::tickets are in the order of the queue.
  void pass_by(Survey& survey, int64_t uid, const Limits& limits, const std::vector<std::string>& free_keys,
               Basis basis, Steady now);

  std::optional<int64_t> num_devices;  ///< Of this machine; nullopt: not known yet.

 private:
  std::optional<std::set<std::string>> notes_;  ///< At the last look.
  std::map<int64_t, Time> started_;
  std::optional<int64_t> first_;  ///< The user whose request could start, and does not; nullopt: there is none.
  Steady first_since_;
  std::set<int64_t> passed_;  ///< Users. Nothing that they could write makes them come back.
};

}  // namespace yoke::claim
