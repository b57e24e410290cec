// yoke/claim/fair_share.h -- the order of those who wait, by what their users have used lately. Pure.
#pragma once

#include <map>
#include <vector>

#include "yoke/claim/history.h"
#include "yoke/claim/ledger.h"

namespace yoke::claim {

/// The claims of the history and those that run, with the ends of those that have ended. A claim whose end was not
/// written ended when there was the last sign of it.
std::vector<Use> all_uses(std::vector<Use> history, const Survey& survey, Time now);

/// The device-seconds of use. A second that is `half_life` old counts half, one that is twice as old a quarter.
double decayed_use(const Use& use, std::chrono::seconds half_life, Time now);
std::map<int64_t, double> use_by_user(const std::vector<Use>& uses, std::chrono::seconds half_life, Time now);

/// Puts tickets that are in order of arrival in order of their users' use, least first; users who have used the same
/// stay in order of arrival. A request that has waited for `patience` comes before all that arrived later, whatever its
/// user has used. So from then on only requests that arrived earlier can start before it.
void put_in_fair_order(std::vector<Ticket>& tickets, const std::map<int64_t, double>& use,
                       std::chrono::seconds patience, Time now);

}  // namespace yoke::claim
