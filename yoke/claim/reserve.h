// yoke/claim/reserve.h -- makes and cancels reservations of this user, and puts off the ends of claims if reservations
// allow it.
#pragma once

#include <string>
#include <vector>

#include "yoke/claim/reservation.h"

namespace yoke::claim {

/// Makes the reservation `wanted` if claims and other reservations leave its devices at its time, looking at them up to
/// five times. REQUIRES: `wanted.made` is now. `candidates`: all devices of this machine.
/// Errors  kFailedPrecondition: the site or other reservations do not allow it; kUnavailable: claims do not end before
/// its start, somebody who waits for devices would start later (root may do that), or looking at them took too long
/// each time.
Reservation reserve(const Reservation& wanted, const Ledger& ledger, const SiteConfig& config,
                    const std::vector<Candidate>& candidates);

/// Errors  kNotFound: there is no reservation of this id; kPermissionDenied: only other users have one.
void cancel_reservation(const std::string& id, const LockFolder& records);

/// Puts off the end of a claim by `length`, and returns the new end. `survey`: of `ledger`. `candidates`: all devices
/// of this machine; empty if nothing is reserved. Errors  kFailedPrecondition: the claim has no end, or the site or
/// other users' reservations do not allow it; those of Ledger::extend().
Time extend_claim(const HeldNote& held, std::chrono::seconds length, const Survey& survey, const Ledger& ledger,
                  const SiteConfig& config, const std::vector<Candidate>& candidates);

}  // namespace yoke::claim
