#include "yoke/claim/allocate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/moment.h"
#include "yoke/base/text.h"
#include "yoke/claim/fair_share.h"
#include "yoke/claim/history.h"
#include "yoke/claim/reservation.h"
#include "yoke/claim/share.h"
#include "yoke/device/process/info.h"

namespace yoke::claim {
namespace {

Asker asker_of(const AllocationRequest& request, const Place* place) {
  return {.uid = geteuid(),
          .num_devices = request.wish.num_devices,
          .ticket = place == nullptr ? std::nullopt : std::optional(place->name())};
}

std::string claimed_by(const std::vector<const Holding*>& holdings, const Survey& survey, Time now) {
  if (is_shared_by_all(holdings)) return sharers_text(holdings);
  const auto& holding =
      **std::ranges::find_if(holdings, [](const Holding* one) { return !one->share_bytes.has_value(); });
  if (!holding.doubt.empty()) return "locked " + holding.doubt + ", but not by yoke";
  auto text = "claimed by " + holder_text(holding);
  if (!holding.note) return text + ", not by yoke";
  const auto& note = survey.notes[*holding.note].note;
  if (note && note->until && *note->until > now) {
    text += fmt::format(" for {} more", format_duration(*note->until - now));
  }
  return holding.is_locked ? text : text + ", whose lock file was replaced";
}

/// Leaves out requests that a reservation keeps from starting now. If they held back later requests, devices would be
/// idle until the reservation begins. The asker's own reservations do not count, because they must not let the asker
/// come before others.
void leave_out_held_back(Survey& survey, const Asker& asker, std::vector<Reservation> reservations,
                         const std::vector<Candidate>& candidates, Time now) {
  std::erase_if(reservations, [&](const Reservation& one) { return one.uid == asker.uid; });
  if (reservations.empty()) return;
  // Those that wait for claims to end, and not because of a reservation, keep their place.
  auto devices = availability_of(candidates, survey, now);
  for (auto& device : devices) device.free_from = now;
  std::erase_if(survey.tickets, [&](const Ticket& ticket) {
    const auto& length = ticket.request.length;
    const auto end = length ? std::optional(now + *length) : std::nullopt;
    return ticket.name != asker.ticket &&
           find_leave(reservations, survey, devices, ticket.uid, end, now).most < ticket.request.num_devices;
  });
}

/// Returns this request's turn. With --backfill, a request that says how long it takes may come before others.
Turn find_turn(Survey survey, const Ledger& ledger, const AllocationRequest& request, const Place* place,
               const SiteConfig& config, const std::vector<std::string>& free_keys) {
  const auto num_free = static_cast<int64_t>(free_keys.size());
  const auto now = std::chrono::system_clock::now();
  auto asker = asker_of(request, place);
  if (place == nullptr && config.order == Order::kFair && !survey.tickets.empty()) {
    // By fair share a request that does not wait can come before others, as if it began to wait now.
    asker.ticket = "";
    survey.tickets.push_back({.uid = asker.uid, .since = now, .request = {.num_devices = asker.num_devices}});
  }
  order_queue(survey, ledger, config, now);
  const auto limits = limits_for(survey, config);
  auto turn = turn_of(survey, asker, limits);
  if (place == nullptr) turn.position = 0;
  if (turn.position > 0) {
    turn.expected_wait = expected_waits(survey, limits, num_free, now)[static_cast<size_t>(turn.position) - 1];
  }
  if (turn.is_ours || !request.goes_ahead || !request.length) return turn;
  turn.is_ours = may_go_ahead(survey, asker, limits, num_free, *request.length, now);
  if (turn.is_ours) return turn;
  if (const auto avoid = keys_to_avoid(survey, asker, limits, free_keys)) {
    turn.is_ours = true;
    turn.avoid = *avoid;
  }
  return turn;
}

std::string limit_text(const Excess& excess, int64_t wanted) {
  const auto whose = excess.is_own          ? "you"
                     : excess.group.empty() ? "a user"
                                            : fmt::format("the group {}", printable(excess.group));
  const auto who = limiter(excess.is_own);
  const auto most = fmt::format("{} {}", excess.most, excess.most == 1 ? "device" : "devices");
  if (wanted > excess.most) {
    return fmt::format("{} lets {} have {} at a time, and {} are wanted; ask for fewer", who, whose, most, wanted);
  }
  return fmt::format("{} lets {} have {}, and {} {}; release some (`yoke claims` lists them), or ask for fewer", who,
                     whose, most, excess.group.empty() ? "you hold" : "its members hold", excess.num_held);
}

bool may_be_given(Standing standing) {
  return standing != Standing::kUnusable && standing != Standing::kExcluded && standing != Standing::kTooSmall;
}

/// The most devices, up to the wanted number, that one claim may have when nobody else has any.
int64_t num_usable_together(const std::vector<Candidate>& candidates, const Wish& wish) {
  std::vector<size_t> usable;
  for (size_t i = 0; i < candidates.size(); ++i) {
    // A part of unknown size is never given.
    if (may_be_given(candidates[i].standing) && (!wish.is_share || candidates[i].memory_bytes)) usable.push_back(i);
  }
  return static_cast<int64_t>(preferred(candidates, std::move(usable), static_cast<size_t>(wish.num_devices)).size());
}

/// Marks devices that others have reserved by name.
void mark_reserved(std::vector<Candidate>& candidates, const std::vector<Reservation>& reservations,
                   const Leave& leave) {
  for (auto& candidate : candidates) {
    const auto reserved = leave.reserved_keys.find(key_in_name(candidate.key));
    if (candidate.standing != Standing::kFree || reserved == leave.reserved_keys.end()) continue;
    const auto& one = reservations[reserved->second];
    candidate.mark(Standing::kReserved,
                   fmt::format("reserved by {} from {} until {}", printable(device::user_name(one.uid)),
                               moment_text(one.start), moment_text(one.until)));
  }
}

std::string reservation_refusal(const Reservation& one, int64_t most, Time now) {
  auto text = reservation_text(one);
  if (most > 0) text += fmt::format(", which leaves {}", most);
  if (one.start > now + std::chrono::minutes(1)) {
    const auto minutes = std::chrono::duration_cast<std::chrono::minutes>(one.start - now).count();
    text += fmt::format("; a claim that ends before, with --for {}m or less, may have more", minutes);
  }
  return text;
}

void exclude_others(std::vector<Candidate>& candidates, const std::vector<std::string>& only) {
  if (only.empty()) return;
  for (auto& candidate : candidates) {
    if (std::ranges::find(only, candidate.id) == only.end()) candidate.mark(Standing::kExcluded, "it was not named");
  }
}

constexpr const char* kHowToQueue = "use --wait to queue, or see `yoke claims`";

Refusal refusal_of(const Allocation& allocation, const std::vector<Candidate>& candidates,
                   const AllocationRequest& request, const SiteConfig& config) {
  const auto wanted = request.wish.num_devices;
  const auto are_wanted = fmt::format("{} {} wanted", wanted, wanted == 1 ? "device is" : "devices are");
  if (allocation.turn.excess) return {limit_text(*allocation.turn.excess, wanted)};
  if (allocation.is_hopeless) {
    return {fmt::format("{}, and only {} of {} can be claimed{}; `yoke claim --explain` with the same wishes says why",
                        are_wanted, num_usable_together(candidates, request.wish),
                        request.only.empty() ? candidates.size() : request.only.size(),
                        wanted == 1 ? "" : " together")};
  }
  if (allocation.turn.num_ahead > 0) {
    const bool is_one = allocation.turn.num_ahead == 1;
    const auto* const what =
        config.order == Order::kFair
            ? (is_one ? "request of a user who has used less, or waited for longer, comes first"
                      : "requests of users who have used less, or waited for longer, come first")
            : (is_one ? "request has been waiting for longer" : "requests have been waiting for longer");
    return {fmt::format("{} {}", allocation.turn.num_ahead, what), kHowToQueue};
  }
  if (!allocation.reservation.empty()) {
    return {are_wanted + ", and " + allocation.reservation, kHowToQueue};
  }
  std::vector<std::string> reasons;
  for (const auto& candidate : candidates) {
    if (candidate.standing == Standing::kFree || candidate.standing == Standing::kExcluded) continue;
    const bool is_sentence = candidate.standing == Standing::kSuspect || candidate.standing == Standing::kTooSmall;
    reasons.push_back(fmt::format("device {}{} {}", candidate.id, is_sentence ? ":" : " is", candidate.reason));
  }
  constexpr size_t kMost = 3;
  const auto num_more = reasons.size() > kMost ? reasons.size() - kMost : 0;
  if (num_more > 0) reasons.resize(kMost);
  const auto num_free = std::ranges::count_if(
      candidates, [](const Candidate& candidate) { return candidate.standing == Standing::kFree; });
  if (num_free >= wanted) {
    return {fmt::format("{} devices are wanted, and of those that are free a program does not see {} together, because "
                        "it sees whole GPUs or MIG instances, and one of each GPU instance",
                        wanted, wanted),
            kHowToQueue};
  }
  const bool helps_waiting = num_usable_together(candidates, request.wish) >= wanted;
  auto why = fmt::format("{}, and {} {} free: {}{}", are_wanted, num_free, num_free == 1 ? "is" : "are",
                         fmt::join(reasons, "; "), num_more > 0 ? fmt::format("; and {} more", num_more) : "");
  if (helps_waiting) return {std::move(why), kHowToQueue};
  return {why + "; waiting does not help until that is mended"};
}

/// The PCI bridges above each device of the snapshot.
std::vector<BusPath> read_bus_paths(const device::Snapshot& snapshot) {
  std::vector<BusPath> paths;
  for (const auto& device : snapshot.devices) {
    const auto& id = device.facts.pci_bus_id;
    if (id.empty() || id.find('/') != id.npos) continue;
    std::error_code error;
    const auto path = std::filesystem::canonical(std::filesystem::path("/sys/bus/pci/devices") / id, error);
    if (error) continue;
    BusPath bus{.pci_bus_id = id, .bridges = {}};
    for (const auto& part : path.parent_path()) {
      const auto name = part.string();
      if (name.starts_with("pci") || std::ranges::count(name, ':') == 2) bus.bridges.push_back(name);
    }
    paths.push_back(std::move(bus));
  }
  return paths;
}

/// Marks the devices that are held or whose lock cannot be used. With Wish::is_share, devices are left out that others
/// share, too (share.h).
void mark_claimed(std::vector<Candidate>& candidates, const Survey& survey, const LockFolder& folder, Time now,
                  const Wish& wish) {
  LockFolder::Leases leases;
  for (auto& candidate : candidates) {
    if (candidate.key.empty()) continue;
    if (candidate.standing == Standing::kExcluded) continue;
    const auto obstacle = folder.obstacle(lock_name(candidate.key), &leases);
    const auto holdings = survey.find_all(candidate.key);
    if (obstacle) {
      candidate.mark(Standing::kUnusable, "without a lock, because " + printable(*obstacle));
    } else if (!holdings.empty() && candidate.standing != Standing::kTooSmall) {
      if (wish.is_share && is_shared_by_all(holdings)) continue;
      candidate.mark(Standing::kClaimed, claimed_by(holdings, survey, now));
    }
  }
}

/// What this process reads before it takes the lock that all share, so that nobody waits for it.
struct Preparation {
  const Ledger& ledger;
  const AllocationRequest& request;
  const SiteConfig& config;
  const Place* place;
  std::vector<Candidate> all;         ///< With the standing that their use gives them.
  std::vector<Candidate> candidates;  ///< With the standing that the request gives them.
  Closeness closeness;
};

/// Decides, and takes. REQUIRES: `survey` was made in `session`, with these `owners`.
Allocation attempt(const Preparation& known, const Ledger::Session& session, Survey survey,
                   Ledger::Session::Owners owners) {
  const auto& request = known.request;
  Allocation result;
  auto candidates = known.candidates;
  result.is_hopeless = num_usable_together(candidates, request.wish) < request.wish.num_devices;
  const auto now = std::chrono::system_clock::now();
  mark_claimed(candidates, survey, known.ledger.folder(), now, request.wish);
  if (request.wish.is_share) mark_full(candidates, survey, request.wish);
  const auto reservations =
      honoured_reservations(known.ledger, survey, known.config, static_cast<int64_t>(candidates.size()), now);
  survey.reserved = num_reserved_now(reservations, survey, now);
  const auto end = request.length ? std::optional(now + *request.length) : std::nullopt;
  // A process that is adopted has its devices already.
  const auto leave = request.takes_used ? Leave()
                                        : find_leave(reservations, survey, availability_of(known.all, survey, now),
                                                     int64_t{geteuid()}, end, now);
  mark_reserved(candidates, reservations, leave);
  std::vector<std::string> free_keys;
  for (const auto& candidate : candidates) {
    if (candidate.standing == Standing::kFree && candidate.num_sharers == 0) free_keys.push_back(candidate.key);
  }
  leave_out_held_back(survey, asker_of(request, known.place), reservations, known.all, now);
  result.turn = find_turn(survey, known.ledger, request, known.place, known.config, free_keys);
  for (auto& candidate : candidates) {
    const auto& avoid = result.turn.avoid;
    if (candidate.standing != Standing::kFree || std::ranges::find(avoid, candidate.key) == avoid.end()) continue;
    candidate.mark(Standing::kReserved, "what the first request in the queue waits for");
  }
  for (;;) {
    const auto picked =
        request.wish.is_share ? pick_shares(candidates, request.wish) : pick(candidates, known.closeness, request.wish);
    result.sentences = picked.sentences;
    const bool is_reserved = leave.first && request.wish.num_devices > leave.most;
    if (is_reserved) result.reservation = reservation_refusal(reservations[*leave.first], leave.most, now);
    if (picked.chosen.empty() || !result.turn.is_ours || is_reserved) {
      const bool is_above_limit = result.turn.excess && request.wish.num_devices > result.turn.excess->most;
      result.is_hopeless = result.is_hopeless || is_above_limit;
      result.refusal = refusal_of(result, candidates, request, known.config);
      if (picked.chosen.empty()) return result;
      // The words about the choice would say that these devices are given.
      std::erase_if(result.sentences, [](const std::string& text) { return !text.starts_with("device "); });
      result.sentences.push_back("nothing is given: " + result.refusal->why);
      return result;
    }
    std::vector<std::string> keys;
    result.ids.clear();
    result.warnings.clear();
    for (const auto position : picked.chosen) {
      const auto& one = candidates[position];
      keys.push_back(one.key);
      result.ids.push_back(one.id);
      if (one.damage.empty()) continue;
      result.warnings.push_back(
          fmt::format("device {} is given although {}; `yoke doctor` says what to do", one.id, one.damage));
    }
    if (request.is_dry) {
      result.sentences.insert(result.sentences.end(), result.warnings.begin(), result.warnings.end());
      return result;
    }
    std::string held;
    auto note = request.note;
    note.since = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
    if (request.length) note.until = note.since + *request.length;
    if (request.wish.is_share) note.share_bytes = request.wish.memory_bytes;
    if (auto claim = session.take(keys, note, held)) {
      result.claim.emplace(std::move(*claim));
      return result;
    }
    result.is_stale = held.empty();
    if (result.is_stale) return result;
    // Something else than yoke has the lock; only the kernel's list tells who.
    if (owners == Ledger::Session::Owners::kOfNotes) {
      result.refusal = {"locked by somebody"};
      return result;
    }
    for (auto& candidate : candidates) {
      if (candidate.key == held) candidate.mark(Standing::kClaimed, "locked by somebody");
    }
  }
}

std::string holders_of(const Survey& survey, const std::vector<std::string>& keys) {
  std::vector<std::string> names;
  for (const auto& key : keys) {
    for (const auto* holding : survey.find_all(key)) {
      const auto name = holder_text(*holding);
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  constexpr size_t kMost = 4;
  if (names.size() > kMost) {
    const auto more = fmt::format("{} more", names.size() - kMost + 1);
    names.resize(kMost - 1);
    names.push_back(more);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Outlook outlook_of(Survey survey, const Ledger& ledger, const std::vector<std::string>& keys,
                   const AllocationRequest& request, const SiteConfig& config, const Place& place) {
  const auto now = std::chrono::system_clock::now();
  // How many devices there are is not known here. allocate() asks again.
  constexpr int64_t kAnyNumber = 4096;
  const auto reservations = honoured_reservations(ledger, survey, config, kAnyNumber, now);
  survey.reserved = num_reserved_now(reservations, survey, now);
  std::vector<Candidate> candidates;
  for (const auto& key : keys) candidates.push_back({.key = key});
  leave_out_held_back(survey, asker_of(request, &place), reservations, candidates, now);
  std::vector<std::string> free_keys;
  for (const auto& key : keys) {
    if (survey.find(key) == nullptr) free_keys.push_back(key);
  }
  Outlook result{.turn = find_turn(survey, ledger, request, &place, config, free_keys)};
  // Only the drivers tell how much room there is beside others.
  const auto num_possible = std::ranges::count_if(keys, [&](const std::string& key) {
    const auto holdings = survey.find_all(key);
    return holdings.empty() || (request.wish.is_share && is_shared_by_all(holdings));
  });
  result.is_worthwhile = num_possible >= request.wish.num_devices && result.turn.is_ours;
  return result;
}

}  // namespace

std::string holder_text(const Holding& holding) {
  if (!holding.uid) return "somebody who cannot be seen from here";
  const auto name = user_text(*holding.uid);
  return holding.pid ? fmt::format("{} (pid {})", name, *holding.pid) : name;
}

Allocation allocate(const Ledger& ledger, const device::Snapshot& snapshot, const AllocationRequest& request,
                    const SiteConfig& config, const Place* place) {
  auto all = candidates_of(snapshot, request.wish);
  auto candidates = all;
  for (auto& candidate : candidates) {
    const bool is_used = candidate.standing == Standing::kInUse || candidate.standing == Standing::kSuspect;
    if (request.takes_used && is_used) candidate.standing = Standing::kFree;
  }
  exclude_others(candidates, request.only);
  auto closeness = closeness_of(snapshot, candidates, read_bus_paths(snapshot));
  const Preparation known{ledger, request, config, place, std::move(all), std::move(candidates), std::move(closeness)};
  auto session = ledger.open(request.is_dry ? Ledger::Access::kLook : Ledger::Access::kTake, request.lock_wait);
  // A claim may have ended meanwhile and left a process on its device that the snapshot does not have.
  constexpr std::chrono::milliseconds kMostAge(500);
  if (std::chrono::steady_clock::now() - request.read_at > kMostAge) {
    return {.is_stale = true, .has_passed_by = session.has_passed_by()};
  }
  using Owners = Ledger::Session::Owners;
  if (auto survey = session.survey(Owners::kOfNotes); !request.is_dry && survey.knows_holders()) {
    auto result = attempt(known, session, std::move(survey), Owners::kOfNotes);
    result.has_passed_by = session.has_passed_by();
    if (!result.refusal) return result;
  }
  auto result = attempt(known, session, session.survey(Owners::kAll), Owners::kAll);  // its words name processes
  result.has_passed_by = session.has_passed_by();
  return result;
}

void order_queue(Survey& survey, const Ledger& ledger, const SiteConfig& config, Time now) {
  if (config.order != Order::kFair || survey.tickets.size() < 2) return;
  const auto uses = all_uses(read_history(ledger.records(), now), survey, now);
  put_in_fair_order(survey.tickets, use_by_user(uses, config.half_life, now), config.patience, now);
}

Limits limits_for(const Survey& survey, const SiteConfig& config) {
  std::set<int64_t> uids = {int64_t{geteuid()}};
  for (const auto& holding : survey.holdings) uids.insert(holding.uid.value_or(0));
  for (const auto& ticket : survey.tickets) uids.insert(ticket.uid);
  return resolve_limits(config, uids);
}

Outlook outlook(const Ledger& ledger, const std::vector<std::string>& keys, const AllocationRequest& request,
                const SiteConfig& config, const Place& place) {
  auto survey = ledger.look_without_lock();
  auto holders = holders_of(survey, keys);
  auto result = outlook_of(std::move(survey), ledger, keys, request, config, place);
  result.holders = std::move(holders);
  return result;
}

bool is_worthwhile(const Ledger& ledger, const std::vector<std::string>& keys, const AllocationRequest& request,
                   const SiteConfig& config, const Place& place) {
  auto survey = ledger.look_at_notes();
  if (!survey.knows_holders()) return false;
  return outlook_of(std::move(survey), ledger, keys, request, config, place).is_worthwhile;
}

}  // namespace yoke::claim
