// yoke/claim/inherit.h -- which devices of a claim a program gets that was started under it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/claim/note.h"

namespace yoke::claim {

struct InheritRequest {
  std::vector<std::string> held;                      ///< The ids of the claim's devices, in the order of Note::keys.
  std::vector<Heir> heirs = {};                       ///< Others that use some of them.
  std::optional<int64_t> num_devices = {};            ///< nullopt: all, or all of `only`.
  std::optional<std::vector<std::string>> only = {};  ///< The ids that were named.
  int64_t holder = 0;                                 ///< The process of the claim, for messages.
};

/// Returns the positions in `held`. Devices that no other heir uses come first.
/// Errors  kFailedPrecondition: the claim does not have that many devices, or not the ones that were named.
std::vector<int64_t> choose_inherited(const InheritRequest& request);

}  // namespace yoke::claim
