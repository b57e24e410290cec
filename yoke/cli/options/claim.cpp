#include "yoke/cli/options/claim.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/quantity.h"
#include "yoke/base/text.h"
#include "yoke/claim/reservation.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/device/process/info.h"

namespace yoke::cli {
namespace {

/// How many devices could be given now.
int64_t num_free(const device::Snapshot& snapshot, const claim::Survey& survey) {
  const auto candidates = claim::candidates_of(snapshot, {});
  return std::ranges::count_if(candidates, [&](const claim::Candidate& candidate) {
    return candidate.standing == claim::Standing::kFree && survey.find(candidate.key) == nullptr;
  });
}

std::vector<view::ReservationRow> rows_of(const std::vector<claim::Reservation>& reservations,
                                          const claim::Survey& survey) {
  const auto left = num_left(reservations, survey);
  std::vector<view::ReservationRow> rows;
  for (size_t i = 0; i < reservations.size(); ++i) rows.push_back({reservations[i], left[i], ""});
  return rows;
}

}  // namespace

ClaimSite open_claim_site(const Context& context, SiteUse use) {
  // A write above the limit of `ulimit -f` then fails, and is reported. It is a handler, and not SIG_IGN, because the
  // program that is started must not inherit it.
  std::signal(SIGXFSZ, [](int) {});
  site::LeftOut left_out;
  const bool looks = use == SiteUse::kLook;
  auto site = keep::open_claim_site(context.environment, looks ? claim::FolderCheck::kTell : claim::FolderCheck::kAll,
                                    looks ? &left_out : nullptr);
  for (const auto& warning : {site.mistake, site.ledger.folder().elsewhere()}) {
    if (!warning.empty()) std::cerr << speaker(context) << "warning: " << warning << std::endl;
  }
  return site;
}

claim::Survey look_at_claims(const ClaimSite& site, const Context& context) {
  try {
    return site.ledger.open(claim::Ledger::Access::kLook, {.limit = std::chrono::seconds(2)}).survey();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnavailable && error.code() != ErrorCode::kFailedPrecondition) throw;
    std::cerr << speaker(context) << "warning: " << printable(error.what()) << std::endl;
    return site.ledger.look_without_lock();
  }
}

ClaimsView describe_claims(const ClaimSite& site, claim::Survey survey, const device::Snapshot& snapshot,
                           claim::Time now) {
  auto rows = view::claim_rows(survey, snapshot, device::user_name);
  claim::order_queue(survey, site.ledger, site.config, now);
  auto waits = expected_waits(survey, claim::limits_for(survey, site.config), num_free(snapshot, survey), now);
  const auto num_devices = static_cast<int64_t>(claim::candidates_of(snapshot, {}).size());
  auto reservations = rows_of(honoured_reservations(site.ledger, survey, site.config, num_devices, now), survey);
  return {std::move(survey), std::move(rows), std::move(waits), std::move(reservations), {}, {}};
}

ClaimsView view_claims(const device::Snapshot& snapshot, const Context& context) {
  try {
    site::LeftOut left_out;
    const auto site = keep::open_claim_site(context.environment, claim::FolderCheck::kOwn, &left_out);
    auto view = describe_claims(site, site.ledger.look_without_lock(), snapshot, snapshot.time);
    view.mistake = site.mistake;
    return view;
  } catch (const Error& error) {
    return {.problem = error.what()};
  }
}

nlohmann::ordered_json ClaimsView::to_json() const {
  if (!problem.empty()) return nullptr;
  return view::claims_json(rows, survey, waits, reservations, device::user_name);
}

std::string mistake_line(const ClaimsView& view, const Context& context) {
  return view.mistake.empty() ? "" : fmt::format("{}warning: {}\n", speaker(context), view.mistake);
}

std::vector<const claim::HeldNote*> find_claims(const claim::Survey& survey, const std::vector<std::string>& words,
                                                bool mine) {
  std::vector<const claim::HeldNote*> found;
  const auto add = [&](const claim::HeldNote& note) {
    if (std::ranges::find(found, &note) == found.end()) found.push_back(&note);
  };
  for (const auto& word : words) {
    const auto pid = parse_int(word);
    bool is_any = false;
    for (size_t i = 0; i < survey.notes.size(); ++i) {
      const auto& held = survey.notes[i];
      const auto names = [&](const claim::Holding& holding) { return holding.note == i && holding.key == word; };
      // Of several who share a device, its UUID means this user's claims.
      const bool is_other = held.uid != int64_t{geteuid()} && held.note && held.note->share_bytes;
      const bool is_process = pid && (held.pid == pid || (held.pid && held.note && held.note->program_pid == *pid));
      if (!is_process && (is_other || std::ranges::none_of(survey.holdings, names))) continue;
      add(held);
      is_any = true;
    }
    if (!is_any) {
      throw Error(ErrorCode::kNotFound,
                  "{} is neither the PID of a claim nor the UUID of a device that yoke holds; see "
                  "`yoke claims`",
                  printable(word));
    }
  }
  for (const auto& held : survey.notes) {
    if (mine && held.uid == int64_t{geteuid()}) add(held);
  }
  return found;
}

std::chrono::seconds length_of(const std::string& option, const std::string& text) {
  if (const auto length = parse_length(text)) return *length;
  throw Error(ErrorCode::kInvalidArgument, "{} {}: give a length of time, such as 90s, 30m, 4h or 1d12h", option,
              printable(text));
}

std::optional<keep::Acquired> acquire(const keep::AcquireOptions& options, const ClaimSite& site, Context& context,
                                      int& status, Reasons reasons) {
  context.out.flush();  // children read the devices
  auto acquired = keep::acquire(options, site, context.environment, teller(context, reasons));
  status = acquired.status;
  return status == 0 ? std::optional(std::move(acquired)) : std::nullopt;
}

std::optional<std::chrono::seconds> length_of_claim(const std::string& text, const claim::SiteConfig& config) {
  const auto length = text.empty() ? std::nullopt : std::optional(length_of("--for", text));
  if (geteuid() == 0 || !config.longest || (length && *length <= *config.longest)) return length;
  throw Error(ErrorCode::kInvalidArgument, "{} limits claims to {}; give --for with at most that",
              claim::limiter(config.is_own_longest), format_rough_duration(*config.longest));
}

}  // namespace yoke::cli
