// yoke/dist/detail/mismatch.h -- how a rank ends whose collective met another one.
#pragma once

#include <functional>
#include <string>

namespace yoke::dist {

/// When ranks call different collectives, a message can be longer than its receiver has room for. Then Gloo throws on a
/// thread of its own, where nobody can catch it, and the process ends. From now on this end says what it means, on
/// standard error and to the launcher, after `report` has told the other ranks; it returns the message with this rank's
/// name. The last `report` counts.
void explain_mismatches(std::function<std::string(const std::string& text)> report);

}  // namespace yoke::dist
