#include "yoke/claim/reservation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/json_text.h"
#include "yoke/base/moment.h"
#include "yoke/base/text.h"
#include "yoke/claim/detail/json_fields.h"
#include "yoke/claim/detail/locked_text.h"
#include "yoke/claim/detail/survey.h"
#include "yoke/device/process/info.h"

namespace yoke::claim {
namespace {

constexpr std::string_view kReservationPrefix = "yoke-reservation-";
constexpr size_t kMostOfUser = 64;  // files that are looked at

bool overlap(const Reservation& a, const Reservation& b) { return a.start < b.until && b.start < a.until; }

bool is_active(const Reservation& reservation, Time at) { return reservation.start <= at && at < reservation.until; }

bool names_key(const Reservation& reservation, const std::string& key) {
  return std::ranges::any_of(reservation.keys,
                             [&](const std::string& other) { return key_in_name(other) == key_in_name(key); });
}

/// Why `one` exceeds a limit, given those that were made before it and are honoured. Reduces it to what they leave.
std::string judge(Reservation& one, const std::vector<const Reservation*>& before, const Limits& limits,
                  const SiteConfig& config, int64_t num_devices) {
  const bool is_root = one.uid == 0;
  if (one.until <= one.start) return "must end after its start";
  if (!is_root && one.until - one.start > config.reserve_longest) {
    return fmt::format("may last for {} at most here", format_duration(config.reserve_longest));
  }
  if (!is_root && config.longest && one.until - one.start > *config.longest) {
    return fmt::format("may last for {} at most{}", format_duration(*config.longest),
                       config.is_own_longest ? ", as your own configuration says" : " here");
  }
  if (!is_root && one.start > one.made + config.reserve_ahead) {
    return fmt::format("may begin within {} at most here", format_duration(config.reserve_ahead));
  }
  const auto num_of_user = std::ranges::count_if(before, [&](const auto* other) { return other->uid == one.uid; });
  if (!is_root && num_of_user >= config.reservations_per_user) {
    return fmt::format("is one too many: a user may have {} here; cancel one of yours",
                       counted(config.reservations_per_user, "reservation"));
  }
  std::vector<Time> moments = {one.start};
  for (const auto* other : before) {
    if (overlap(*other, one) && other->start > one.start) moments.push_back(other->start);
  }
  for (const auto moment : moments) {
    std::map<int64_t, int64_t> by_user;
    int64_t total = one.num_devices;
    for (const auto* other : before) {
      if (!is_active(*other, moment)) continue;
      by_user[other->uid] += other->num_devices;
      total += other->num_devices;
    }
    if (const auto excess = find_excess(limits, by_user, one.uid, one.num_devices)) {
      return fmt::format("of {} exceeds the limit of {}{}, of which {} are reserved for that time",
                         counted(one.num_devices, "device"), counted(excess->most, "device"),
                         excess->group.empty() ? "" : " for the group " + printable(excess->group), excess->num_held);
    }
    if (total - one.num_devices >= num_devices) return "finds no device left: all are reserved for that time";
    one.num_devices = std::min(one.num_devices, num_devices - (total - one.num_devices));
  }
  for (const auto* other : before) {
    if (!overlap(*other, one)) continue;
    for (const auto& key : one.keys) {
      if (names_key(*other, key)) return fmt::format("of {} overlaps another one: {}", key, reservation_text(*other));
    }
  }
  return "";
}

/// How many devices would be free at a moment, beyond those that the reservations need which `concerns` chooses.
template <typename Concerns>
int64_t spare_at(Time moment, const std::vector<Reservation>& reservations, const std::vector<int64_t>& left,
                 const std::vector<Availability>& devices, const Concerns& concerns) {
  std::set<std::string> reserved;
  int64_t num_needed = 0;
  for (size_t i = 0; i < reservations.size(); ++i) {
    const auto& one = reservations[i];
    if (!concerns(one) || !is_active(one, moment)) continue;
    for (const auto& key : one.keys) reserved.insert(key_in_name(key));
    if (one.keys.empty()) num_needed += left[i];
  }
  const auto num_free = std::ranges::count_if(devices, [&](const Availability& device) {
    return device.free_from && *device.free_from <= moment && !reserved.contains(key_in_name(device.key));
  });
  return num_free - num_needed;
}

}  // namespace

std::string Reservation::id() const { return name.substr(name.rfind('-') + 1); }

std::string to_text(const Reservation& reservation) {
  const SortedJson json = {{"num_devices", reservation.num_devices},
                           {"keys", reservation.keys},
                           {"start", seconds_since_epoch(reservation.start)},
                           {"until", seconds_since_epoch(reservation.until)},
                           {"purpose", reservation.purpose.substr(0, kMostPurposeBytes)}};
  return json_line(json) + "\n";
}

std::optional<Reservation> parse_reservation(std::string_view text) {
  constexpr int64_t kMostDevices = 4096;
  const auto json = SortedJson::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto num_devices = number_in(json, "num_devices", 1, kMostDevices);
  const auto start = number_in(json, "start", 0, kLastSecond), until = number_in(json, "until", 0, kLastSecond);
  if (!num_devices || !start || !until) return std::nullopt;
  Reservation result{.num_devices = *num_devices,
                     .start = Time(std::chrono::seconds(*start)),
                     .until = Time(std::chrono::seconds(*until))};
  if (const auto keys = json.find("keys"); keys != json.end() && keys->is_array()) {
    auto known = keys_in(json, kMostDevices);
    if (!known) return std::nullopt;
    result.keys = std::move(*known);
  }
  if (!result.keys.empty() && static_cast<int64_t>(result.keys.size()) != result.num_devices) return std::nullopt;
  result.purpose = purpose_in(json);
  return result;
}

std::vector<std::string> judge_reservations(std::vector<Reservation>& reservations, const Limits& limits,
                                            const SiteConfig& config, int64_t num_devices) {
  std::vector<std::string> result;
  std::vector<const Reservation*> honoured;
  for (auto& reservation : reservations) {
    result.push_back(judge(reservation, honoured, limits, config, num_devices));
    if (result.back().empty()) honoured.push_back(&reservation);
  }
  return result;
}

bool has_lapsed(const Reservation& reservation, const Survey& survey, const std::vector<Use>& history,
                const SiteConfig& config, Time now) {
  if (reservation.until <= now) return true;
  if (reservation.start + config.reserve_grace > now) return false;
  auto last = reservation.start;
  if (std::ranges::any_of(survey.holdings, [&](const Holding& one) { return one.uid == reservation.uid; }))
    return false;
  for (const auto& use : history) {
    if (use.uid == reservation.uid) last = std::max(last, use.end.value_or(use.last_sign));
  }
  return last + config.reserve_grace <= now;
}

std::vector<int64_t> num_left(const std::vector<Reservation>& reservations, const Survey& survey) {
  std::vector<int64_t> left;
  std::set<const Holding*> counted;
  for (const auto& reservation : reservations) {
    auto num = reservation.num_devices;
    for (const auto& holding : survey.holdings) {
      const auto* const held = holding.note ? &survey.notes[*holding.note] : nullptr;
      if (num == 0 || holding.uid != reservation.uid || held == nullptr || !held->note) continue;
      if (held->note->since < reservation.start) continue;
      if (!reservation.keys.empty() && !names_key(reservation, holding.key)) continue;
      if (counted.insert(&holding).second) --num;
    }
    left.push_back(num);
  }
  return left;
}

std::map<int64_t, int64_t> num_reserved_now(const std::vector<Reservation>& reservations, const Survey& survey,
                                            Time now) {
  std::map<int64_t, int64_t> result;
  const auto left = num_left(reservations, survey);
  for (size_t i = 0; i < reservations.size(); ++i) {
    if (reservations[i].start <= now && left[i] > 0) result[reservations[i].uid] += left[i];
  }
  return result;
}

std::vector<Availability> availability_of(const std::vector<Candidate>& candidates, const Survey& survey, Time now) {
  std::vector<Availability> result;
  for (const auto& candidate : candidates) {
    if (candidate.standing == Standing::kUnusable || candidate.key.empty()) continue;
    Availability device{.key = candidate.key};
    const bool is_used = candidate.standing == Standing::kInUse || candidate.standing == Standing::kSuspect;
    if (!is_used || survey.find(candidate.key) != nullptr) device.free_from = survey.free_from(candidate.key, now);
    result.push_back(std::move(device));
  }
  return result;
}

Leave find_leave(const std::vector<Reservation>& reservations, const Survey& survey,
                 const std::vector<Availability>& devices, int64_t uid, const std::optional<Time>& end, Time now) {
  const auto left = num_left(reservations, survey);
  const auto concerns = [&](const Reservation& one) {
    return one.uid != uid && one.until > now && (!end || one.start < *end);
  };
  Leave leave;
  for (size_t i = 0; i < reservations.size(); ++i) {
    const auto& begins = reservations[i];
    if (!concerns(begins)) continue;
    for (const auto& key : begins.keys) leave.reserved_keys.emplace(key_in_name(key), i);
    const auto spare = spare_at(std::max(now, begins.start), reservations, left, devices, concerns);
    if (spare >= leave.most || (left[i] == 0 && begins.keys.empty())) continue;
    leave.most = spare;
    leave.first = i;
  }
  return leave;
}

int64_t num_missing(const std::vector<Reservation>& reservations, const Survey& survey,
                    const std::vector<Availability>& devices) {
  const auto& last = reservations.back();
  const auto left = num_left(reservations, survey);
  int64_t spare = 0;
  for (const auto& one : reservations) {
    if (!overlap(one, last)) continue;
    const auto moment = std::max(one.start, last.start);
    spare = std::min(spare, spare_at(moment, reservations, left, devices, [](const Reservation&) { return true; }));
  }
  const auto is_late = [&](const std::string& key) {
    return std::ranges::none_of(devices, [&](const Availability& device) {
      return key_in_name(device.key) == key_in_name(key) && device.free_from && *device.free_from <= last.start;
    });
  };
  return std::max(-spare, int64_t{std::ranges::count_if(last.keys, is_late)});
}

std::string reservation_text(const Reservation& reservation) {
  return fmt::format("{} {} reserved by {} from {} until {}", counted(reservation.num_devices, "device"),
                     reservation.num_devices == 1 ? "is" : "are", printable(device::user_name(reservation.uid)),
                     moment_text(reservation.start), moment_text(reservation.until));
}

// ---- with files -----------------------------------------------------------------------------------------------------

std::vector<Reservation> read_reservations(const LockFolder& records) {
  std::vector<Reservation> result;
  std::map<int64_t, size_t> num_of_user;
  for (const auto& name : records.names(kReservationPrefix)) {
    const auto fd = records.open_existing(name);
    struct stat status {};
    if (!fd || fstat(fd->value(), &status) != 0 || uid_in(name, kReservationPrefix) != int64_t{status.st_uid}) continue;
    if (++num_of_user[status.st_uid] > kMostOfUser) continue;
    auto reservation = parse_reservation(read_text(fd->value()));
    if (!reservation) continue;
    reservation->name = name;
    reservation->uid = status.st_uid;
    reservation->made = changed_at(status);
    result.push_back(std::move(*reservation));
  }
  std::ranges::sort(result, [](const Reservation& a, const Reservation& b) {
    return std::tie(a.made, a.name) < std::tie(b.made, b.name);
  });
  return result;
}

std::vector<Reservation> honoured_reservations(const Ledger& ledger, const Survey& survey, const SiteConfig& config,
                                               int64_t num_devices, Time now) {
  auto all = read_reservations(ledger.records());
  if (all.empty()) return {};
  std::vector<Use> history;
  const bool may_have_lapsed = std::ranges::any_of(
      all, [&](const Reservation& one) { return one.until > now && has_lapsed(one, survey, {}, config, now); });
  if (may_have_lapsed) history = read_history(ledger.records(), now);
  std::erase_if(all, [&](const Reservation& one) { return has_lapsed(one, survey, history, config, now); });
  std::set<int64_t> uids;
  for (const auto& one : all) uids.insert(one.uid);
  const auto verdicts = judge_reservations(all, resolve_limits(config, uids), config, num_devices);
  std::vector<Reservation> result;
  for (size_t i = 0; i < all.size(); ++i) {
    if (verdicts[i].empty()) result.push_back(std::move(all[i]));
  }
  return result;
}

Reservation make_reservation(const LockFolder& records, Reservation reservation) {
  reservation.name = fmt::format("{}{}-{}", kReservationPrefix, geteuid(), random_digits(8));
  reservation.uid = geteuid();
  const auto fd = records.create(reservation.name);
  const auto text = to_text(reservation);
  if (write(fd.value(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    records.remove(reservation.name);
    throw Error(ErrorCode::kUnavailable, "writing {}: no space is left in {}; make room",
                records.path_of(reservation.name).string(), records.path().string());
  }
  return reservation;
}

}  // namespace yoke::claim
