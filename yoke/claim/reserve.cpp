#include "yoke/claim/reserve.h"

#include <unistd.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/moment.h"
#include "yoke/base/text.h"
#include "yoke/device/process/info.h"

namespace yoke::claim {
namespace {

/// Makes the reservation if it is possible now. Returns nullopt if looking at the claims took longer than `term`. It
/// prints nothing, because others wait.
std::optional<Reservation> make_if_possible(const Reservation& wanted, const Ledger& ledger, const SiteConfig& config,
                                            const std::vector<Candidate>& candidates, std::chrono::seconds term) {
  const auto now = wanted.made;
  const auto num_devices = static_cast<int64_t>(candidates.size());
  auto session = ledger.open(Ledger::Access::kTake, {.term = term});
  const auto survey = session.survey();
  for (const auto& old : read_reservations(ledger.records())) {
    if (old.uid == int64_t{geteuid()} && old.until <= now) ledger.records().remove(old.name);
  }
  auto all = honoured_reservations(ledger, survey, config, num_devices, now);
  all.push_back(wanted);
  std::set<int64_t> uids;
  for (const auto& one : all) uids.insert(one.uid);
  const auto verdict = judge_reservations(all, resolve_limits(config, uids), config, num_devices).back();
  if (!verdict.empty()) throw Error(ErrorCode::kFailedPrecondition, "a reservation {}", verdict);
  if (all.back().num_devices < wanted.num_devices) {
    throw Error(ErrorCode::kFailedPrecondition,
                "{} devices are wanted, and {} of {} are not reserved for that time; `yoke reserve --list` lists them",
                wanted.num_devices, all.back().num_devices, num_devices);
  }
  if (const auto missing = num_missing(all, survey, availability_of(candidates, survey, std::min(now, wanted.start)));
      missing > 0) {
    throw Error(ErrorCode::kUnavailable,
                "{} of the {} devices would not be free at {}, because claims and programs have them that do not say "
                "that they end before; see `yoke claims`, and choose a later time, or fewer devices",
                std::min(missing, wanted.num_devices), wanted.num_devices, moment_text(wanted.start));
  }
  if (session.is_late()) return std::nullopt;
  return make_reservation(ledger.records(), wanted);
}

/// Returns a reservation of somebody else that has devices of the claim before `until`.
std::optional<Reservation> find_conflict(const HeldNote& held, Time until, const Survey& survey,
                                         const std::vector<Reservation>& reservations,
                                         const std::vector<Candidate>& candidates, Time now) {
  auto extended = survey;
  for (auto& note : extended.notes) {
    if (note.name == held.name && note.note) note.note->until = until;
  }
  const auto leave_of = [&](const Survey& at) {
    return find_leave(reservations, at, availability_of(candidates, at, now), held.uid, until, now);
  };
  const auto leave = leave_of(extended);
  std::optional<size_t> conflict;
  if (leave.most < std::min<int64_t>(leave_of(survey).most, 0)) conflict = leave.first;
  for (const auto& key : held.note->keys) {
    const auto reserved = leave.reserved_keys.find(key_in_name(key));
    if (reserved != leave.reserved_keys.end()) conflict = reserved->second;
  }
  return conflict ? std::optional(reservations[*conflict]) : std::nullopt;
}

}  // namespace

/// On a busy machine looking may take too long more than once, so each try has a longer term. Others may pass by
/// meanwhile; but readers check a reservation, too, so the term is no more than a courtesy.
Reservation reserve(const Reservation& wanted, const Ledger& ledger, const SiteConfig& config,
                    const std::vector<Candidate>& candidates) {
  for (int num_tries = 1; num_tries <= 5; ++num_tries) {
    if (auto made = make_if_possible(wanted, ledger, config, candidates, kLockPatience * num_tries)) {
      return *std::move(made);
    }
  }
  throw Error(ErrorCode::kUnavailable,
              "five times looking at the claims took too long, so nothing was reserved; try again when the machine is "
              "less busy");
}

void cancel_reservation(const std::string& id, const LockFolder& records) {
  const auto all = read_reservations(records);
  const auto can_cancel = [](const Reservation& one) { return geteuid() == 0 || one.uid == int64_t{geteuid()}; };
  auto found = std::ranges::find_if(all, [&](const auto& one) { return one.id() == id && can_cancel(one); });
  if (found == all.end()) found = std::ranges::find(all, id, &Reservation::id);
  if (found == all.end()) {
    throw Error(ErrorCode::kNotFound, "there is no reservation {}; `yoke reserve --list` lists them", printable(id));
  }
  if (!can_cancel(*found)) {
    throw Error(ErrorCode::kPermissionDenied, "the reservation {} belongs to {}; only that user or root may cancel it",
                id, printable(device::user_name(found->uid)));
  }
  records.remove(found->name);
}

Time extend_claim(const HeldNote& held, std::chrono::seconds length, const Survey& survey, const Ledger& ledger,
                  const SiteConfig& config, const std::vector<Candidate>& candidates) {
  const auto pid = held.pid.value_or(0);
  if (!held.note || !held.note->until) {
    throw Error(ErrorCode::kFailedPrecondition, "the claim of process {} has no end that could be put off", pid);
  }
  const auto now = std::chrono::system_clock::now();
  const auto until = *held.note->until + length;
  if (geteuid() != 0 && config.longest && until - held.note->since > *config.longest) {
    throw Error(ErrorCode::kFailedPrecondition, "{} limits claims to {} in all, and this one began {} ago",
                limiter(config.is_own_longest), format_duration(*config.longest),
                format_duration(now - held.note->since));
  }
  const auto reservations = honoured_reservations(ledger, survey, config, static_cast<int64_t>(candidates.size()), now);
  if (const auto conflict = find_conflict(held, until, survey, reservations, candidates, now)) {
    throw Error(ErrorCode::kFailedPrecondition, "{}, so the claim of process {} cannot last until {}",
                reservation_text(*conflict), pid, moment_text(until));
  }
  ledger.extend(held, until);
  return until;
}

}  // namespace yoke::claim
