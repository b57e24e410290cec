// yoke/dist/detail/mismatch.h -- reports why a process ends if its rank called a different collective than the others.
#pragma once

#include <functional>
#include <string>

namespace yoke::dist {

/// When ranks call different collectives, a message can be longer than its receiver's buffer. Gloo then throws on a
/// thread of its own, where the exception cannot be caught, and the process ends. Once this function was called, such a
/// process first calls `report`, which informs the other ranks and returns the message with this rank's name. Then the
/// process writes that message to standard error and to the launcher. If this function is called again, the last
/// `report` counts.
void explain_mismatches(std::function<std::string(const std::string& text)> report);

}  // namespace yoke::dist
