#include "yoke/claim/detail/survey.h"

#include <fmt/format.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <set>

#include "yoke/base/environment.h"

namespace yoke::claim {
namespace {

bool belongs_to(const ProcessFacts& facts, int64_t uid) { return facts.real_uid == uid || facts.effective_uid == uid; }

/// Whether `pid` is the process that the note means, and a process of the note's owner.
bool is_process(int64_t pid, int64_t start_ticks, int64_t uid, const Lookup& lookup) {
  if (pid <= 0) return false;
  const auto facts = lookup.facts(static_cast<pid_t>(pid));
  return facts && facts->start_ticks == start_ticks && belongs_to(*facts, uid);
}

/// Whether the process that locked a note still holds it, whatever the note says.
bool holds(const LockedFile& note, const Lookup& lookup) {
  const auto facts = lookup.facts(note.locker);
  return facts && belongs_to(*facts, note.status.st_uid) &&
         lookup.opens(note.locker, note.status.st_ino).value_or(true);
}

bool has_key(const Note& note, const std::string& key) {
  return std::ranges::any_of(note.keys, [&](const std::string& other) { return key_in_name(other) == key; });
}

/// Whether `note` may be about a lock that `locker` took.
bool explains(const HeldNote& note, const std::string& key, pid_t locker, const Lookup& lookup) {
  if (locker == 0 || note.locker != locker || (note.note && !has_key(*note.note, key))) return false;
  const auto facts = lookup.facts(locker);
  if (!facts) return true;  // it has ended, or is hidden: its program holds the lock
  const bool is_later = note.note && facts->start_ticks != note.note->start_ticks;  // the PID was used again
  return is_later || belongs_to(*facts, note.uid);
}

/// A lock that no note explains. Its process may have passed the descriptor on and ended, and then somebody else's
/// process may have its number. So its user is named only if the process is seen to have the file open.
Holding stranger(const LockedFile& device, pid_t locker, const Lookup& lookup) {
  Holding result{.key = device.name.substr(kDevicePrefix.size())};
  if (locker == 0) return result;
  const auto facts = lookup.facts(locker);
  const auto opens = facts ? lookup.opens(locker, device.status.st_ino) : std::optional(false);
  if (opens.value_or(false)) {
    result.uid = facts->effective_uid;
    result.pid = locker;
  } else if (opens) {
    result.doubt = fmt::format("by process {}, which has ended or is hidden", locker);
  } else {
    result.doubt = fmt::format("by process {} of {}, or by one that had this number before", locker,
                               user_text(facts->effective_uid.value_or(-1)));
  }
  return result;
}

/// Those who share a device. A note counts only if the kernel says that its process holds the device, too, or if it
/// does not show that process here.
std::vector<Holding> sharers_of(const LockedFile& device, const std::vector<HeldNote>& notes, const Lookup& lookup) {
  const auto key = device.name.substr(kDevicePrefix.size());
  std::vector<Holding> result;
  std::set<size_t> explained;
  const auto add = [&](size_t i) {
    explained.insert(i);
    const auto& held = notes[i];
    result.push_back({.key = key,
                      .uid = held.uid,
                      .pid = held.pid,
                      .note = i,
                      .share_bytes = held.note ? held.note->share_bytes : std::nullopt});
  };
  for (const auto sharer : device.sharers) {
    size_t i = 0;
    while (i < notes.size() && (explained.contains(i) || !explains(notes[i], key, sharer, lookup))) ++i;
    if (i < notes.size()) {
      add(i);
      continue;
    }
    result.push_back(stranger(device, sharer, lookup));
  }
  for (size_t i = 0; i < notes.size(); ++i) {
    const auto& note = notes[i].note;
    if (notes[i].locker == 0 && !explained.contains(i) && note && note->share_bytes && has_key(*note, key)) add(i);
  }
  if (result.empty()) result.push_back({.key = key});
  return result;
}

/// For a lock whose process the kernel does not show here (it is in a different PID namespace, or the file system has
/// inode numbers of its own): the note that names the device, if there is only one such note. Its owner can so take a
/// lock upon himself, and cannot put it on somebody else.
std::optional<size_t> only_note_about(const std::vector<HeldNote>& notes, const std::string& key) {
  std::optional<size_t> found;
  for (size_t i = 0; i < notes.size(); ++i) {
    if (notes[i].locker != 0 || !notes[i].note || !has_key(*notes[i].note, key)) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

/// Adds how claims hold a device whose locks the kernel does not show here.
void add_what_notes_say(LockedFile& device, const std::vector<HeldNote>& notes) {
  const auto key = device.name.substr(kDevicePrefix.size());
  for (const auto& held : notes) {
    if (held.locker != 0 || !held.note || !has_key(*held.note, key)) continue;
    device.is_shared = held.note->share_bytes && (device.is_shared || !device.is_held);
    device.is_held = true;
  }
}

}  // namespace

std::string device_by_stat(const struct stat& status) {
  return fmt::format("{:02x}:{:02x}", major(status.st_dev), minor(status.st_dev));
}

pid_t locker_of(const std::vector<KernelLock>& locks, const std::string& device, uint64_t inode) {
  for (const auto& lock : locks) {
    if (!lock.is_shared && lock.inode == inode && lock.device == device) return lock.pid;
  }
  return 0;
}

Time changed_at(const struct stat& status) {
  return Time(std::chrono::duration_cast<Time::duration>(std::chrono::seconds(status.st_ctim.tv_sec) +
                                                         std::chrono::nanoseconds(status.st_ctim.tv_nsec)));
}

Time written_at(const struct stat& status) {
  return Time(std::chrono::duration_cast<Time::duration>(std::chrono::seconds(status.st_mtim.tv_sec) +
                                                         std::chrono::nanoseconds(status.st_mtim.tv_nsec)));
}

std::string key_in_name(const std::string& key) {
  auto name = key;
  std::ranges::replace(name, '/', '_');
  return name;
}

std::optional<int64_t> uid_in(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const auto end = name.find('-');
  if (end == name.npos || end == 0) return std::nullopt;
  const auto rest = name.substr(end + 1);
  if (rest.empty() || rest.find_first_not_of("0123456789abcdef-") != rest.npos) return std::nullopt;
  const auto uid = parse_int(name.substr(0, end));
  return uid && *uid >= 0 ? uid : std::nullopt;
}

std::vector<HeldNote> held_notes(const std::vector<LockedFile>& files, const Lookup& lookup) {
  std::vector<HeldNote> notes;
  for (const auto& file : files) {
    if (!file.is_held) continue;
    HeldNote held{.name = file.name, .uid = file.status.st_uid, .locker = file.locker, .note = parse_note(file.text)};
    if (held.note) {
      const auto& note = *held.note;
      const bool is_locker = note.pid == file.locker || file.locker == 0;
      if (is_locker && is_process(note.pid, note.start_ticks, held.uid, lookup)) {
        held.pid = note.pid;
      } else if (is_process(note.program_pid, note.program_start_ticks, held.uid, lookup)) {
        held.pid = note.program_pid;
      }
      for (const auto& heir : note.heirs) {  // of a claim whose process was killed
        if (!held.pid && is_process(heir.pid, heir.start_ticks, held.uid, lookup)) held.pid = heir.pid;
      }
    }
    if (!held.pid && holds(file, lookup)) held.pid = file.locker;
    notes.push_back(std::move(held));
  }
  return notes;
}

std::vector<Holding> holdings_of(const std::vector<LockedFile>& devices, const std::vector<HeldNote>& notes,
                                 const Lookup& lookup) {
  std::vector<Holding> holdings;
  std::set<std::string> seen;
  for (auto device : devices) {
    if (!device.is_held) add_what_notes_say(device, notes);
    if (!device.is_held) continue;
    if (device.is_shared) {
      for (auto& sharer : sharers_of(device, notes, lookup)) holdings.push_back(std::move(sharer));
      seen.insert(device.name.substr(kDevicePrefix.size()));
      continue;
    }
    Holding holding{.key = device.name.substr(kDevicePrefix.size())};
    if (device.locker == 0) holding.note = only_note_about(notes, holding.key);
    for (size_t i = 0; i < notes.size() && !holding.note; ++i) {
      if (explains(notes[i], holding.key, device.locker, lookup)) holding.note = i;
    }
    if (holding.note) {
      holding.uid = notes[*holding.note].uid;
      holding.pid = notes[*holding.note].pid;
    }
    if (!holding.note) holding = stranger(device, device.locker, lookup);
    seen.insert(holding.key);
    holdings.push_back(std::move(holding));
  }
  for (size_t i = 0; i < notes.size(); ++i) {
    if (!notes[i].note) continue;
    for (const auto& key : notes[i].note->keys) {
      if (!seen.insert(key_in_name(key)).second) continue;
      holdings.push_back({.key = key_in_name(key),
                          .is_locked = false,
                          .uid = notes[i].uid,
                          .pid = notes[i].pid,
                          .note = i,
                          .share_bytes = notes[i].note->share_bytes});
    }
  }
  std::ranges::stable_sort(holdings, [](const auto& a, const auto& b) { return a.key < b.key; });
  return holdings;
}

std::vector<Ticket> tickets_of(const std::vector<LockedFile>& files, const Lookup& lookup) {
  struct Arrival {
    timespec at;
    Ticket ticket;
  };
  std::vector<Arrival> arrivals;
  for (const auto& file : files) {
    const auto request = file.is_held ? parse_request(file.text) : std::nullopt;
    if (!request) continue;
    const auto facts = lookup.facts(file.locker);
    arrivals.push_back({file.status.st_ctim,
                        {.name = file.name,
                         .uid = file.status.st_uid,
                         .pid = file.locker,
                         .since = changed_at(file.status),
                         .is_stopped = facts && facts->is_stopped,
                         .request = *request}});
  }
  std::ranges::sort(arrivals, [](const Arrival& a, const Arrival& b) {
    return std::tie(a.at.tv_sec, a.at.tv_nsec, a.ticket.name) < std::tie(b.at.tv_sec, b.at.tv_nsec, b.ticket.name);
  });
  std::vector<Ticket> tickets;
  for (auto& arrival : arrivals) tickets.push_back(std::move(arrival.ticket));
  return tickets;
}

const Holding* Survey::find(const std::string& key) const {
  const auto found = find_all(key);
  return found.empty() ? nullptr : found.front();
}

std::vector<const Holding*> Survey::find_all(const std::string& key) const {
  std::vector<const Holding*> found;
  const auto name = key_in_name(key);
  for (const auto& holding : holdings) {
    if (holding.key == name) found.push_back(&holding);
  }
  return found;
}

std::optional<Time> Survey::free_from(const std::string& key, Time now) const {
  auto end = now;
  for (const auto* holding : find_all(key)) {
    const auto& note = holding->note ? notes[*holding->note].note : std::nullopt;
    if (!note || !note->until) return std::nullopt;
    end = std::max(end, *note->until);
  }
  return end;
}

std::vector<Time> Survey::known_ends(Time now) const {
  std::vector<Time> ends;
  std::map<std::string, std::optional<Time>> ends_of_shared;
  for (const auto& holding : holdings) {
    const auto& note = holding.note ? notes[*holding.note].note : std::nullopt;
    const auto end = note && note->until ? std::optional(std::max(now, *note->until)) : std::nullopt;
    if (holding.share_bytes) {
      auto& last = ends_of_shared.try_emplace(holding.key, now).first->second;
      last = last && end ? std::optional(std::max(*last, *end)) : std::nullopt;
    } else if (end) {
      ends.push_back(*end);
    }
  }
  for (const auto& [key, end] : ends_of_shared) {
    if (end) ends.push_back(*end);
  }
  std::ranges::sort(ends);
  return ends;
}

bool Survey::knows_holders() const {
  // Only the kernel's list tells whether somebody shares a device without a note.
  return std::ranges::all_of(holdings, [](const Holding& holding) { return holding.note && !holding.share_bytes; });
}

}  // namespace yoke::claim
