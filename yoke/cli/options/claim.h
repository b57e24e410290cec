// yoke/cli/options/claim.h -- what the commands about claims share: the ledger of this machine, and waiting for
// devices.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "yoke/claim/allocate.h"
#include "yoke/claim/ledger.h"
#include "yoke/cli/command.h"
#include "yoke/cli/options/device.h"
#include "yoke/device/visibility/set.h"
#include "yoke/keep/use_watch.h"
#include "yoke/view/claims.h"

namespace yoke::cli {

/// The site's configuration and its ledger.
struct ClaimSite {
  claim::SiteConfig config;
  claim::Ledger ledger;
  std::string mistake = {};  ///< Of a configuration that was read only to look: what was left out, in a sentence.
};
/// What for: to take devices, or to look at claims and end them, which a mistake in the configuration does not prevent.
enum class SiteUse { kTake, kLook };
/// With kLook, a mistake in the configuration is told on standard error.
/// Errors  those of claim::read_config and claim::find_lock_folder.
ClaimSite open_claim_site(const Context& context, SiteUse use);

/// Who holds what. If somebody does not give the allocation lock back, a warning says so, and the kernel's list of
/// locks is used.
claim::Survey look_at_claims(const ClaimSite& site, const Context& context);

/// What `yoke claims`, pages and tables about devices show of claims.
struct ClaimsView {
  claim::Survey survey;  ///< Its tickets are in the order in which they get devices.
  std::vector<view::ClaimRow> rows;
  view::Waits waits;
  std::vector<view::ReservationRow> reservations;
  std::string problem;  ///< Why there are none: no folder of locks can be used.
  std::string mistake;  ///< As in ClaimSite.

  /// As `yoke claims --json` has it; null if there is a problem.
  nlohmann::ordered_json to_json() const;
};
ClaimsView describe_claims(const ClaimSite& site, claim::Survey survey, const device::Snapshot& snapshot,
                           claim::Time now);
/// The same without waiting for others and without making files.
ClaimsView view_claims(const device::Snapshot& snapshot, const Context& context);

/// The mistake of the configuration as a line for standard error; empty if there is none.
std::string mistake_line(const ClaimsView& view, const Context& context);

/// Claims that the user named by words of `yoke release` and `yoke extend`: the PID of a holder or a program, or a
/// device's UUID. `mine`: all claims of this user as well.
/// Errors  kNotFound: a word names no claim of yoke. REQUIRES: `survey` outlives the result.
std::vector<const claim::HeldNote*> find_claims(const claim::Survey& survey, const std::vector<std::string>& words,
                                                bool mine);

/// Errors  kInvalidArgument: it is no length of time; names the option.
std::chrono::seconds length_of(const std::string& option, const std::string& text);

struct AcquireOptions {
  claim::AllocationRequest request;
  DeviceOptions device;
  bool waits = false;
  std::optional<std::chrono::seconds> wait_limit;
  std::optional<int64_t> adopted_pid;  ///< Takes the devices that this process uses.
  bool explains = false;
  bool inherits = false;       ///< Under another claim, takes of the devices of that one alone (claim/inherit.h).
  bool needs_details = false;  ///< Reads all facts about the devices (device::Want::details).
  std::function<void()> in_reader =
      {};  ///< Called in the child that reads the devices, which may outlive this process.
};

/// The devices that were taken, or with Allocation::claim empty, those that would be (AllocationRequest::is_dry).
struct Acquired {
  claim::Allocation allocation;
  device::Snapshot snapshot;
  std::vector<std::string> held;  ///< The ids of all devices of the claim under which this runs; empty: there is none.
  std::vector<device::Assignment> assignments;  ///< The variables that make a program see the devices.
  /// Of a process that is about to end (DeviceReader::reap). Waiting for it would delay the program. -1: there is none.
  pid_t ended_reader = -1;
  /// Of a request that has waited. Closing it takes the kernel up to 20 ms, so the program begins first.
  std::optional<claim::Wakeup> wakeup = {};
};

/// Takes devices, after waiting in the queue if that is wanted.
/// Returns  nullopt with `status` if a driver failed, which was reported, or if a signal came.
/// Errors  kUnavailable: not enough devices are free; kTimeout: that lasted until the limit; kNotFound: there is no
/// GPU;
///         kFailedPrecondition: waiting would not help. REQUIRES: this process has one thread.
std::optional<Acquired> acquire(const AcquireOptions& options, const ClaimSite& site, Context& context, int& status);

/// Parses --for. nullopt: `text` is empty. Errors  kInvalidArgument: it is no length, or the site does not allow it.
std::optional<std::chrono::seconds> length_of_claim(const std::string& text, const claim::SiteConfig& config);

/// What a claim is for, unless its user said it: the words before the first option. Everybody may read it, and a
/// command line may be private (hidepid).
std::string purpose_of(const std::vector<std::string>& command);

/// How the use of claimed devices is watched; looks at those alone.
keep::UseWatchOptions watch_options(const AcquireOptions& options, const ClaimSite& site,
                                    const std::vector<std::string>& ids);

/// Runs the program in Context::rest with devices that it alone sees, until it ends (frame/claim_keeper.h).
int keep_for_program(Acquired& acquired, const AcquireOptions& options, const ClaimSite& site, Context& context);

}  // namespace yoke::cli
