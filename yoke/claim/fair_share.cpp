#include "yoke/claim/fair_share.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace yoke::claim {

std::vector<Use> all_uses(std::vector<Use> history, const Survey& survey, Time now) {
  std::map<std::string, const HeldNote*> running;
  for (const auto& held : survey.notes) running[held.name] = &held;
  std::set<std::string> known;
  for (auto& use : history) {
    const auto held = running.find(use.claim);
    const bool is_running = held != running.end() && held->second->uid == use.uid;
    if (is_running) {
      known.insert(use.claim);
      use.end.reset();
      use.idle_seconds = held->second->note ? idle_seconds_of(*held->second->note) : std::nullopt;
    } else if (!use.end) {
      const auto dead = survey.dead_notes.find(use.claim);
      use.end = dead == survey.dead_notes.end() ? use.last_sign
                                                : std::clamp(dead->second, use.since, std::max(use.since, now));
    }
  }
  // Claims whose begin could not be written. What they hold is the kernel's word, and since when their user's.
  for (size_t i = 0; i < survey.notes.size(); ++i) {
    const auto& held = survey.notes[i];
    if (!held.note || known.contains(held.name)) continue;
    Use use{.uid = held.uid, .claim = held.name, .since = std::min(held.note->since, now), .last_sign = now};
    for (const auto& holding : survey.holdings) {
      if (holding.note == i) use.keys.push_back(holding.key);
    }
    if (!use.keys.empty()) history.push_back(std::move(use));
  }
  return history;
}

double decayed_use(const Use& use, std::chrono::seconds half_life, Time now) {
  using Seconds = std::chrono::duration<double>;
  const auto end = std::min(use.end.value_or(now), now);
  if (end <= use.since || half_life.count() <= 0) return 0;
  const auto weight = [&](Time at) { return std::exp2(-(Seconds(now - at) / Seconds(half_life))); };
  const double lasting = Seconds(half_life).count() / std::log(2.0);
  return static_cast<double>(use.keys.size()) * lasting * (weight(end) - weight(use.since));
}

std::map<int64_t, double> use_by_user(const std::vector<Use>& uses, std::chrono::seconds half_life, Time now) {
  std::map<int64_t, double> result;
  for (const auto& use : uses) result[use.uid] += decayed_use(use, half_life, now);
  return result;
}

void put_in_fair_order(std::vector<Ticket>& tickets, const std::map<int64_t, double>& use,
                       std::chrono::seconds patience, Time now) {
  const auto rank = [&](const Ticket& ticket) {
    const auto found = use.find(ticket.uid);
    const bool is_overdue = now - ticket.since >= patience;
    return std::pair(!is_overdue, is_overdue || found == use.end() ? 0 : found->second);
  };
  std::ranges::stable_sort(tickets, [&](const Ticket& a, const Ticket& b) { return rank(a) < rank(b); });
}

}  // namespace yoke::claim
