// yoke/claim/share.h -- which devices can be shared by one more claim, and which one fits best. Pure.
//
// A share is a number of bytes that a user promises to keep to; nothing enforces it on the device. It is refused if it
// does not fit beside the other shares and what everybody else uses.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "yoke/claim/ledger.h"
#include "yoke/claim/policy.h"

namespace yoke::claim {

/// The memory that is left on a device for one more share. A user with shares counts with what they are together, or
/// with what the user's processes use, whichever is more. Everything else that is used counts, too. 0: nothing, or the
/// driver does not tell.
int64_t room_for_share(const Candidate& candidate, const std::map<int64_t, int64_t>& bytes_by_uid);

/// Whether all claims on the device share it.
bool is_shared_by_all(const std::vector<const Holding*>& holdings);

/// "shared by ada (pid 4121) with 8.0 GiB, bob (pid 4122) with 16.0 GiB".
std::string sharers_text(const std::vector<const Holding*>& holdings);

/// Marks devices that have no room for a share of `wish`, and fills in Candidate::num_sharers and room_bytes. Devices
/// that somebody has for himself are left to mark_claimed().
void mark_full(std::vector<Candidate>& candidates, const Survey& survey, const Wish& wish);

/// The devices that fit best: those that nobody uses without a claim, of these the ones that are shared already, then
/// those with the least room left, then the coolest.
Pick pick_shares(const std::vector<Candidate>& candidates, const Wish& wish);

}  // namespace yoke::claim
