#include "yoke/claim/reserve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/moment.h"
#include "yoke/base/text.h"
#include "yoke/claim/allocate.h"
#include "yoke/claim/queue.h"
#include "yoke/device/process/info.h"

namespace yoke::claim {
namespace {

/// When somebody else who waits is expected to have devices: at any time, as far as claims and requests do not tell.
struct Waiting {
  const Ticket* ticket = nullptr;
  Time start = {}, until = Time::max();
};

bool lasts_at(const auto& one, Time moment) { return one.start <= moment && moment < one.until; }

std::vector<Waiting> others_who_wait(Survey survey, const Ledger& ledger, const SiteConfig& config, int64_t num_free,
                                     std::vector<Ticket>& tickets, Time now) {
  order_queue(survey, ledger, config, now);
  const auto limits = limits_for(survey, config);
  const auto waits = expected_waits(survey, limits, num_free, now);
  tickets = survey.tickets;
  std::vector<Waiting> result;
  for (size_t i = 0; i < tickets.size(); ++i) {
    const auto& one = tickets[i];
    const Asker asker{.uid = one.uid, .num_devices = one.request.num_devices, .ticket = one.name};
    if (one.uid == int64_t{geteuid()} || one.is_stopped || turn_of(survey, asker, limits).excess) continue;
    Waiting waiting{.ticket = &one, .start = now + waits[i].value_or(std::chrono::seconds(0))};
    if (waits[i] && one.request.length) waiting.until = waiting.start + *one.request.length;
    result.push_back(waiting);
  }
  return result;
}

/// Whether `reservations` leave a request what it needs at a moment, beside other requests.
bool leave_room_at(Time moment, const Waiting& one, const std::vector<Waiting>& all,
                   const std::vector<Reservation>& reservations, const std::vector<Availability>& devices) {
  std::set<std::string> reserved;
  int64_t num_needed = 0;
  for (const auto& other : reservations) {
    if (!lasts_at(other, moment)) continue;
    for (const auto& key : other.keys) reserved.insert(key_in_name(key));
    if (other.keys.empty()) num_needed += other.num_devices;
  }
  for (const auto& other : all) {
    if (lasts_at(other, moment)) num_needed += other.ticket->request.num_devices;
  }
  const auto& keys = one.ticket->request.keys;
  int64_t num_left = 0, num_left_by_name = 0;
  for (const auto& device : devices) {
    if (reserved.contains(key_in_name(device.key))) continue;
    if (std::ranges::find(keys, device.key) != keys.end()) ++num_left_by_name;
    if (device.free_from && *device.free_from <= moment) ++num_left;
  }
  return num_left >= num_needed && (keys.empty() || num_left_by_name >= one.ticket->request.num_devices);
}

/// Whether the last of `reservations` may make a request start later: there is no room whenever another one begins
/// while both last, or when they begin to.
bool may_delay(const std::vector<Reservation>& reservations, const Waiting& one, const std::vector<Waiting>& all,
               const std::vector<Availability>& devices) {
  const auto& last = reservations.back();
  if (last.until <= one.start || one.until <= last.start) return false;
  return std::ranges::any_of(reservations, [&](const Reservation& other) {
    const auto moment = std::max({last.start, one.start, other.start});
    return lasts_at(last, moment) && lasts_at(one, moment) && !leave_room_at(moment, one, all, reservations, devices);
  });
}

/// Errors  kUnavailable: somebody who waits already may start later because of `wanted`, the last of `reservations`.
void check_queue(const Reservation& wanted, const Survey& survey, const Ledger& ledger, const SiteConfig& config,
                 std::vector<Reservation> reservations, const std::vector<Candidate>& candidates) {
  const auto now = wanted.made;
  const auto devices = availability_of(candidates, survey, std::min(now, wanted.start));
  const auto num_free = std::ranges::count_if(candidates, [&](const Candidate& one) {
    return one.standing == Standing::kFree && survey.find(one.key) == nullptr;
  });
  std::vector<Ticket> tickets;
  const auto waiting = others_who_wait(survey, ledger, config, num_free, tickets, now);
  const auto find_delayed = [&] {
    return std::ranges::find_if(waiting,
                                [&](const auto& one) { return may_delay(reservations, one, waiting, devices); });
  };
  const auto delayed = find_delayed();
  if (delayed == waiting.end()) return;
  // After each request that is in the way, another one may be.
  constexpr int kMostTries = 16;
  auto& later = reservations.back();
  auto next = delayed;
  for (int i = 0; i < kMostTries && next != waiting.end() && next->until != Time::max(); ++i) {
    later.start = std::chrono::ceil<std::chrono::seconds>(next->until);
    later.until = wanted.until + (later.start - wanted.start);
    next = find_delayed();
  }
  const bool is_possible = next == waiting.end() && num_missing(reservations, survey, devices) <= 0;
  const auto& request = delayed->ticket->request;
  throw Error(ErrorCode::kUnavailable, "{} has been waiting for {} since {}, and would start later; {}",
              user_text(delayed->ticket->uid), counted(request.num_devices, "device"),
              moment_text(delayed->ticket->since),
              is_possible ? fmt::format("a reservation could begin at {}", moment_text(later.start))
                          : "reserve fewer devices, or when that request has started");
}

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
  if (geteuid() != 0) check_queue(wanted, survey, ledger, config, std::move(all), candidates);
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
  auto named = read_reservations(records);
  std::erase_if(named, [&](const Reservation& one) { return one.id() != id && one.name != id; });
  if (named.empty()) {
    throw Error(ErrorCode::kNotFound, "there is no reservation {}; `yoke reserve --list` lists them", printable(id));
  }
  const auto cannot_cancel = [](const Reservation& one) { return geteuid() != 0 && one.uid != int64_t{geteuid()}; };
  auto mine = named;
  std::erase_if(mine, cannot_cancel);
  if (mine.empty()) {
    throw Error(ErrorCode::kPermissionDenied, "the reservation {} belongs to {}; only that user or root may cancel it",
                printable(id), printable(device::user_name(named.front().uid)));
  }
  if (mine.size() > 1) {  // whoever writes a file by hand may give it any number
    std::vector<std::string> names;
    for (const auto& one : mine) names.push_back(fmt::format("{} of {}", one.name, user_text(one.uid)));
    throw Error(ErrorCode::kInvalidArgument, "{} reservations have the number {}: {}; give one of these names instead",
                mine.size(), printable(id), printable(fmt::format("{}", fmt::join(names, ", "))));
  }
  records.remove(mine.front().name);
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
