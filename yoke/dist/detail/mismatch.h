// yoke/dist/detail/mismatch.h -- reports why this process ends if ranks called different collectives.
#pragma once

#include <functional>
#include <string>

namespace yoke::dist {

/// If ranks call different collectives, a message can be longer than its receiver's buffer. Gloo then throws on its own
/// thread, where the exception cannot be caught, and the process ends. After explain_mismatches() has been called, the
/// process first calls `report`, which informs the other ranks and returns the message with this rank's name. Then the
/// process writes this message to standard error and to the launcher. A later call of explain_mismatches() replaces
/// `report`.
void explain_mismatches(std::function<std::string(const std::string& text)> report);

}  // namespace yoke::dist
