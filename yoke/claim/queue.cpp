#include "yoke/claim/queue.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>

#include "yoke/base/error.h"

namespace yoke::claim {

namespace {

/// How many devices each user holds or has reserved for now.
std::map<int64_t, int64_t> num_held_by_user(const Survey& survey) {
  std::map<int64_t, int64_t> result;
  for (const auto& holding : survey.holdings) {
    if (holding.uid) ++result[*holding.uid];
  }
  for (const auto& [uid, num_devices] : survey.reserved) result[uid] += num_devices;
  return result;
}

int64_t num_reserved(const Survey& survey, int64_t uid) {
  const auto found = survey.reserved.find(uid);
  return found == survey.reserved.end() ? 0 : found->second;
}

/// The limit that a request would exceed. What its user has reserved for now is counted already.
std::optional<Excess> excess_of(const Survey& survey, const std::map<int64_t, int64_t>& num_held, const Limits& limits,
                                int64_t uid, int64_t num_devices) {
  return find_excess(limits, num_held, uid, num_devices - std::min(num_devices, num_reserved(survey, uid)));
}

/// When enough of the devices that a request names are free, by what those say who hold them.
std::optional<Time> named_are_free(const Survey& survey, const QueuedRequest& request, Time now) {
  std::vector<Time> ends;
  for (const auto& key : request.keys) {
    if (const auto end = survey.free_from(key, now)) ends.push_back(*end);
  }
  const auto wanted = static_cast<size_t>(request.num_devices);
  if (request.keys.empty()) return now;
  if (ends.size() < wanted) return std::nullopt;
  std::ranges::sort(ends);
  return ends[wanted - 1];
}

/// The first request that waits only for devices, and for no limit; nullptr: there is none.
const Ticket* first_in_line(const Survey& survey, const Limits& limits) {
  const auto num_held = num_held_by_user(survey);
  for (const auto& ticket : survey.tickets) {
    if (ticket.is_stopped) continue;
    if (!excess_of(survey, num_held, limits, ticket.uid, ticket.request.num_devices)) return &ticket;
  }
  return nullptr;
}

}  // namespace

Turn turn_of(const Survey& survey, const Asker& asker, const Limits& limits) {
  const auto num_held = num_held_by_user(survey);
  Turn turn{.excess = excess_of(survey, num_held, limits, asker.uid, asker.num_devices)};
  for (size_t i = 0; i < survey.tickets.size(); ++i) {
    const auto& ticket = survey.tickets[i];
    if (asker.ticket && ticket.name == *asker.ticket) {
      turn.position = static_cast<int64_t>(i) + 1;
      break;
    }
    if (ticket.is_stopped) continue;
    if (!excess_of(survey, num_held, limits, ticket.uid, ticket.request.num_devices)) ++turn.num_ahead;
  }
  // What is reserved is not what the others wait for.
  if (num_reserved(survey, asker.uid) >= asker.num_devices) turn.num_ahead = 0;
  turn.is_ours = turn.num_ahead == 0 && !turn.excess;
  return turn;
}

std::vector<std::optional<std::chrono::seconds>> expected_waits(const Survey& survey, const Limits& limits,
                                                                int64_t num_free, Time now) {
  const auto of_claims = survey.known_ends(now);
  std::multiset<Time> ends(of_claims.begin(), of_claims.end());  // of the devices that are held now, or will be
  const auto num_held = num_held_by_user(survey);
  std::vector<std::optional<std::chrono::seconds>> waits;
  auto start = now;
  bool is_known = true;
  for (const auto& ticket : survey.tickets) {
    waits.emplace_back();
    if (!is_known || ticket.is_stopped || excess_of(survey, num_held, limits, ticket.uid, ticket.request.num_devices))
      continue;
    for (; num_free < ticket.request.num_devices && !ends.empty(); ++num_free) {
      start = std::max(start, *ends.begin());
      ends.erase(ends.begin());
    }
    const auto named = named_are_free(survey, ticket.request, now);
    is_known = num_free >= ticket.request.num_devices && named;
    if (!is_known) continue;  // and those behind it wait for it
    start = std::max(start, *named);
    waits.back() = std::chrono::ceil<std::chrono::seconds>(start - now);
    num_free -= ticket.request.num_devices;
    for (int64_t i = 0; ticket.request.length && i < ticket.request.num_devices; ++i) {
      ends.insert(start + *ticket.request.length);
    }
  }
  return waits;
}

std::optional<std::vector<std::string>> keys_to_avoid(const Survey& survey, const Asker& asker, const Limits& limits,
                                                      const std::vector<std::string>& free_keys) {
  const auto* const first = first_in_line(survey, limits);
  if (first == nullptr || first->request.keys.empty()) return std::nullopt;
  if (turn_of(survey, asker, limits).excess) return std::nullopt;
  const auto& wanted = first->request.keys;
  const auto num_others = std::ranges::count_if(
      free_keys, [&](const std::string& key) { return std::ranges::find(wanted, key) == wanted.end(); });
  return num_others >= asker.num_devices ? std::optional(wanted) : std::nullopt;
}

bool may_go_ahead(const Survey& survey, const Asker& asker, const Limits& limits, int64_t num_free,
                  std::chrono::seconds length, Time now) {
  if (turn_of(survey, asker, limits).excess) return false;
  const auto* const first = first_in_line(survey, limits);
  if (first == nullptr || first->name == asker.ticket) return true;
  const auto wanted = first->request.num_devices;
  if (num_free >= wanted) return false;  // the first one is about to start
  const auto ends = survey.known_ends(now);
  const auto missing = static_cast<size_t>(wanted - num_free);
  if (missing > ends.size()) return false;  // it is not known when the first one starts
  const auto start = ends[missing - 1];
  if (now + length <= start) return true;
  const auto num_ended = std::ranges::count_if(ends, [&](Time end) { return end <= start; });
  return num_free + num_ended - wanted >= asker.num_devices;
}

Wakeup::Wakeup(const LockFolder& folder) : fd_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  // Only holders and those who wait have their files open for writing; whoever looks closes files that it only read.
  constexpr uint32_t kEvents = IN_CLOSE_WRITE | IN_DELETE | IN_ONLYDIR;
  if (fd_ && inotify_add_watch(fd_.value(), folder.path().c_str(), kEvents) >= 0) return;
  throw system_error(errno, "watching " + folder.path().string() + " (see fs.inotify.max_user_watches and _instances)");
}

bool Wakeup::drain() {
  alignas(inotify_event) std::array<char, 4096> events;
  bool is_any = false;
  while (read(fd_.value(), events.data(), events.size()) > 0) is_any = true;
  return is_any;
}

std::chrono::milliseconds pause_before(int64_t look) {
  constexpr std::array kPauses = {0, 1, 1, 2, 2, 4, 8, 16, 32, 64, 128, 250, 500};
  constexpr std::chrono::milliseconds kLongest(1000);
  if (look < 0 || look >= static_cast<int64_t>(kPauses.size())) return kLongest;
  return std::chrono::milliseconds(kPauses.at(static_cast<size_t>(look)));
}

}  // namespace yoke::claim
