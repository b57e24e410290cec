#include "yoke/claim/turns.h"

#include <algorithm>
#include <tuple>

#include "yoke/claim/queue.h"

namespace yoke::claim {

void put_in_turns(std::vector<Ticket>& tickets, const std::map<int64_t, Time>& started) {
  struct Entry {
    int64_t round;
    Time since;
    Ticket ticket;
  };
  std::map<int64_t, int64_t> num_of_user;
  std::vector<Entry> places;
  for (auto& ticket : tickets) {
    const auto last = started.find(ticket.uid);
    const auto since = last == started.end() ? ticket.since : std::max(ticket.since, last->second);
    places.push_back({num_of_user[ticket.uid]++, since, std::move(ticket)});
  }
  std::stable_sort(places.begin(), places.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.round, a.since) < std::tie(b.round, b.since);
  });
  tickets.clear();
  for (auto& place : places) tickets.push_back(std::move(place.ticket));
}

std::map<int64_t, Time> starts_in_notes(const Survey& survey, Time now) {
  std::map<int64_t, Time> started;
  for (const auto& held : survey.notes) {
    if (!held.note || held.note->since > now) continue;
    auto& last = started[held.uid];
    last = std::max(last, held.note->since + std::chrono::seconds(1));  // notes have whole seconds
  }
  return started;
}

void leave_out_impossible(Survey& survey, int64_t uid, int64_t num_devices) {
  std::map<int64_t, std::set<std::string>> held;
  for (const auto& holding : survey.holdings) {
    if (holding.uid) held[*holding.uid].insert(holding.key);
  }
  for (auto& ticket : survey.tickets) {
    if (ticket.uid == uid) continue;
    const auto own = ticket.request.share_bytes ? 0 : static_cast<int64_t>(held[ticket.uid].size());
    ticket.is_stopped = ticket.is_stopped || ticket.request.num_devices > num_devices - own;
  }
}

void QueueMemory::look(const Survey& survey, Time now) {
  std::set<std::string> notes;
  for (const auto& held : survey.notes) {
    notes.insert(held.name);
    if (!notes_ || notes_->contains(held.name)) continue;
    started_[held.uid] = now;
  }
  notes_ = std::move(notes);
}

void QueueMemory::pass_by(Survey& survey, int64_t uid, const Limits& limits, const std::vector<std::string>& free_keys,
                          Basis basis, Steady now) {
  const auto leave_out = [&](int64_t user) {
    for (auto& ticket : survey.tickets) ticket.is_stopped = ticket.is_stopped || ticket.uid == user;
  };
  for (const auto user : passed_) leave_out(user);
  const auto* const first = first_in_line(survey, limits);
  const auto could_start = [&](const Request& request) {
    const auto& keys = request.keys;
    const auto num_fitting = std::count_if(free_keys.begin(), free_keys.end(), [&](const std::string& key) {
      return keys.empty() || std::find(keys.begin(), keys.end(), key) != keys.end();
    });
    return num_fitting >= request.num_devices;
  };
  if (first == nullptr || first->uid == uid || !could_start(first->request)) {
    first_.reset();
    return;
  }
  // Not by the request, or a user with many could take one after the other out of the queue.
  if (first_ != first->uid) {
    first_ = first->uid;
    first_since_ = now;
  }
  if (now - first_since_ < kTurnPatience) return;
  const auto user = first->uid;
  leave_out(user);
  if (basis == Basis::kDrivers) {
    passed_.insert(user);
    first_.reset();
  }
}

}  // namespace yoke::claim
