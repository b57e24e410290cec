// yoke/claim/reservation.h -- devices that a user will have at some time: which reservations are honoured, and what
// they leave to others. Pure, but for the functions at the end.
//
// A reservation is a file of its user's own, so it lives without a process. Everybody may write anything into a file of
// his own, so each reader checks the limits of the site again, and passes over what exceeds them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/claim/config.h"
#include "yoke/claim/history.h"
#include "yoke/claim/ledger.h"
#include "yoke/claim/limits.h"
#include "yoke/claim/policy.h"

namespace yoke::claim {

struct Reservation {
  std::string name;  ///< Of its file.
  int64_t uid = 0;   ///< Who owns the file, says the kernel.
  Time made = {};    ///< The file's change time, which a user can make later, but not earlier.
  int64_t num_devices = 1;
  std::vector<std::string> keys;  ///< Of these devices; empty: of any.
  Time start = {}, until = {};
  std::string purpose;

  std::string id() const;  ///< For people: the random part of the name.
  bool operator==(const Reservation&) const = default;
};

/// The file's text. Name, owner and change time are not part of it.
std::string to_text(const Reservation& reservation);
std::optional<Reservation> parse_reservation(std::string_view text);

/// Why a reservation is not honoured, in words that follow "a reservation"; empty: it is. `reservations` are in the
/// order in which they were made: an earlier one comes first. The limits of the site for users and groups count for all
/// reservations of a time together. One that wants more devices than earlier ones leave of the `num_devices` of this
/// machine is reduced to what they leave.
std::vector<std::string> judge_reservations(std::vector<Reservation>& reservations, const Limits& limits,
                                            const SiteConfig& config, int64_t num_devices);

/// Whether its time is over, or its user has not used it at all during the last `reserve_grace`.
bool has_lapsed(const Reservation& reservation, const Survey& survey, const std::vector<Use>& history,
                const SiteConfig& config, Time now);

/// For each reservation, the number of devices that its user has not claimed yet. Only claims since its start count.
std::vector<int64_t> num_left(const std::vector<Reservation>& reservations, const Survey& survey);

/// Devices that users may take now because they have reserved them.
std::map<int64_t, int64_t> num_reserved_now(const std::vector<Reservation>& reservations, const Survey& survey,
                                            Time now);

/// A device as reservations see it.
struct Availability {
  std::string key;
  std::optional<Time> free_from;  ///< nullopt: nobody knows.
};
/// REQUIRES: `candidates` have the standing that their use gives them, without regard to locks.
std::vector<Availability> availability_of(const std::vector<Candidate>& candidates, const Survey& survey, Time now);

/// What reservations leave to a claim of `uid` that lasts until `end`.
struct Leave {
  int64_t most = INT64_MAX;                     ///< How many devices the claim may have.
  std::map<std::string, size_t> reserved_keys;  ///< Devices that it may not have, with the position of the reservation.
  std::optional<size_t> first;                  ///< The reservation that leaves so few, by its position.
};
/// `uid`: whose reservations do not count; -1: all count.
Leave find_leave(const std::vector<Reservation>& reservations, const Survey& survey,
                 const std::vector<Availability>& devices, int64_t uid, const std::optional<Time>& end, Time now);

/// How many devices the last of `reservations` would lack at some moment, as far as claims say when they end.
int64_t num_missing(const std::vector<Reservation>& reservations, const Survey& survey,
                    const std::vector<Availability>& devices);

/// "4 devices are reserved by ada from 2026-11-24 09:00:00 until 2026-11-24 11:00:00".
std::string reservation_text(const Reservation& reservation);

// ---- with files -----------------------------------------------------------------------------------------------------

/// All reservations in order of when they were made, also those that are not honoured.
std::vector<Reservation> read_reservations(const LockFolder& records);

/// Those that are honoured now. REQUIRES: `survey` is of `ledger`. `num_devices`: that this machine has.
std::vector<Reservation> honoured_reservations(const Ledger& ledger, const Survey& survey, const SiteConfig& config,
                                               int64_t num_devices, Time now);

/// Makes a reservation of this user. REQUIRES: a session of the ledger exists.
/// Errors  kUnavailable: the disk is full.
Reservation make_reservation(const LockFolder& records, Reservation reservation);

}  // namespace yoke::claim
