// yoke/claim/reserve.h -- makes and cancels reservations of this user.
#pragma once

#include <string>
#include <vector>

#include "yoke/claim/reservation.h"

namespace yoke::claim {

/// Makes the reservation `wanted` if claims and other reservations leave its devices at its time, looking at them up to
/// five times. REQUIRES: `wanted.made` is now. `candidates`: all devices of this machine.
/// Errors  kFailedPrecondition: the site or other reservations do not allow it; kUnavailable: claims do not end before
/// its start, or looking at them took too long each time.
Reservation reserve(const Reservation& wanted, const Ledger& ledger, const SiteConfig& config,
                    const std::vector<Candidate>& candidates);

/// Errors  kNotFound: there is no reservation of this id; kPermissionDenied: only other users have one.
void cancel_reservation(const std::string& id, const LockFolder& records);

}  // namespace yoke::claim
