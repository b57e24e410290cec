// yoke/cli/options/claim.h -- what the commands about claims share: the ledger of this machine, and taking devices.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "yoke/claim/allocate.h"
#include "yoke/claim/ledger.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/keep/acquire.h"
#include "yoke/keep/claim_site.h"
#include "yoke/view/claims.h"

namespace yoke::cli {

using keep::ClaimSite;

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

/// keep::acquire() for this command. `reasons`: where they are printed. Returns nullopt if a signal ended the wait;
/// `status` then says what the command returns. Errors  those of keep::acquire().
std::optional<keep::Acquired> acquire(const keep::AcquireOptions& options, const ClaimSite& site, Context& context,
                                      int& status, Reasons reasons = Reasons::kNowhere);

/// Parses --for. nullopt: `text` is empty. Errors  kInvalidArgument: it is no length, or the site does not allow it.
std::optional<std::chrono::seconds> length_of_claim(const std::string& text, const claim::SiteConfig& config);

}  // namespace yoke::cli
