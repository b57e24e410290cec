// yoke/claim/allocate.h -- one attempt to claim devices: looks at the locks, decides, and takes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/claim/config.h"
#include "yoke/claim/ledger.h"
#include "yoke/claim/limits.h"
#include "yoke/claim/policy.h"
#include "yoke/claim/queue.h"
#include "yoke/device/device.h"

namespace yoke::claim {

struct AllocationRequest {
  Wish wish;
  std::vector<std::string> only = {};  ///< Ids of the devices that may be given; empty: all.
  bool takes_used = false;             ///< Also gives devices that are in use without a claim (`--adopt`).
  bool goes_ahead = false;  ///< Starts before others where that delays nobody (`--backfill`); needs `length`.
  bool is_dry = false;      ///< Decides, and takes nothing.
  LockWait lock_wait = {};  ///< How long to wait for the lock that all processes share.
  Note note = {};           ///< The purpose. Its times are set when devices are taken.
  std::optional<std::chrono::seconds> length = {};
  std::chrono::steady_clock::time_point read_at =
      std::chrono::steady_clock::now();  ///< When the snapshot was complete.
};

/// Why nothing is given, in words for people.
struct Refusal {
  std::string why;
  std::string next = {};  ///< What to do next for somebody who does not wait yet; empty: `why` says what helps.

  std::string text() const { return next.empty() ? why : why + "; " + next; }
};

struct Allocation {
  std::optional<Claim> claim;
  std::vector<std::string> ids;        ///< Of the devices that were chosen, as in `yoke devices`.
  std::vector<std::string> sentences;  ///< The reason, for `--explain`.
  std::optional<Refusal> refusal;      ///< Set if nothing was chosen.
  std::vector<std::string> warnings;   ///< What is wrong with devices that were chosen.
  Turn turn;
  /// Nothing was decided: the snapshot was too old when it was this process's turn, or another process took devices
  /// meanwhile. Read the devices again.
  bool is_stale = false;
  bool has_passed_by = false;  ///< Another process kept the lock that all share for too long.
  std::string reservation;  ///< The reservation that keeps it from having the devices, in a sentence; empty: none does.
  bool is_hopeless = false;  ///< Waiting would not help: the machine does not have that many devices.
};

/// Errors  those of Ledger::open and take.
Allocation allocate(const Ledger& ledger, const device::Snapshot& snapshot, const AllocationRequest& request,
                    const SiteConfig& config, const Place* place);

/// What a waiting process learns from the locks alone, without asking the drivers.
struct Outlook {
  bool is_worthwhile = false;  ///< Enough locks are free and it is our turn, so that it pays to ask the drivers.
  Turn turn;
  std::string holders = {};  ///< "ada (pid 4121), bob (pid 4177)": who holds devices that may be given; empty: nobody.
};
/// `keys`: of all devices that may be given.
Outlook outlook(const Ledger& ledger, const std::vector<std::string>& keys, const AllocationRequest& request,
                const SiteConfig& config, const Place& place);

/// The same in less than a millisecond, without the kernel's list of locks. It does not know of locks that something
/// else than yoke took. False also means that it cannot tell.
bool is_worthwhile(const Ledger& ledger, const std::vector<std::string>& keys, const AllocationRequest& request,
                   const SiteConfig& config, const Place& place);

/// Sorts the tickets in the order that the site has configured. For fair share, reads the history, unless nobody waits.
void order_queue(Survey& survey, const Ledger& ledger, const SiteConfig& config, Time now);

/// The limits of everybody who holds or wants devices, and of this user.
Limits limits_for(const Survey& survey, const SiteConfig& config);

/// "ada (pid 4121)", "uid 1007", "somebody": a holder as text for people.
std::string holder_text(const Holding& holding);

}  // namespace yoke::claim
