#include "yoke/claim/queue.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "yoke/base/error.h"

namespace yoke::claim {

std::map<int64_t, int64_t> num_held_by_user(const Survey& survey) {
  std::map<int64_t, int64_t> result;
  for (const auto& holding : survey.holdings) {
    if (holding.uid) ++result[*holding.uid];
  }
  return result;
}

Turn turn_of(const Survey& survey, const Asker& asker, const std::optional<int64_t>& devices_per_user) {
  const auto num_held = num_held_by_user(survey);
  const auto held_by = [&](int64_t uid) {
    const auto found = num_held.find(uid);
    return found == num_held.end() ? 0 : found->second;
  };
  const auto is_limited = [&](int64_t uid, int64_t num_devices) {
    return uid != 0 && devices_per_user && held_by(uid) + num_devices > *devices_per_user;
  };
  Turn turn{.is_limited = is_limited(asker.uid, asker.num_devices), .num_held = held_by(asker.uid)};
  for (const auto& ticket : survey.tickets) {
    if (asker.ticket && ticket.name == *asker.ticket) break;
    if (!is_limited(ticket.uid, ticket.request.num_devices)) ++turn.num_ahead;
  }
  turn.is_ours = turn.num_ahead == 0 && !turn.is_limited;
  return turn;
}

bool may_go_ahead(const Survey& survey, const Asker& asker, const std::optional<int64_t>& devices_per_user,
                  int64_t num_free, std::chrono::seconds length, Time now) {
  if (turn_of(survey, asker, devices_per_user).is_limited) return false;
  const auto first = std::find_if(survey.tickets.begin(), survey.tickets.end(), [&](const Ticket& ticket) {
    const Asker other{.uid = ticket.uid, .num_devices = ticket.request.num_devices, .ticket = ticket.name};
    return !turn_of(survey, other, devices_per_user).is_limited;
  });
  if (first == survey.tickets.end() || first->name == asker.ticket) return true;
  const auto wanted = first->request.num_devices;
  if (num_free >= wanted) return false;  // the first one is about to start
  std::vector<Time> ends;
  for (const auto& holding : survey.holdings) {
    const auto* const held = holding.note ? &survey.notes[*holding.note] : nullptr;
    if (held != nullptr && held->note && held->note->until) ends.push_back(std::max(now, *held->note->until));
  }
  std::sort(ends.begin(), ends.end());
  const auto missing = static_cast<size_t>(wanted - num_free);
  if (missing > ends.size()) return false;  // it is not known when the first one starts
  const auto start = ends[missing - 1];
  if (now + length <= start) return true;
  const auto num_ended = std::count_if(ends.begin(), ends.end(), [&](Time end) { return end <= start; });
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
