#include "yoke/claim/inherit.h"

#include <algorithm>

#include "yoke/base/text.h"
#include "yoke/device/selection.h"
#include "yoke/keep/detail/inherit.h"

namespace yoke::keep {

void inherit(claim::Claim outer, const AcquireOptions& options, const claim::Ledger& ledger, Acquired& result) {
  const auto note = outer.note();
  const auto candidates = claim::candidates_of(result.snapshot, {});
  for (const auto& key : note.keys) {
    const auto found = std::ranges::find_if(candidates, [&](const auto& one) { return one.key == key; });
    if (found == candidates.end()) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "the claim under which this runs (process {}) has the device {}, which this machine does not show",
                  note.pid, printable(key));
    }
    result.held.push_back(found->id);
  }
  claim::InheritRequest request{.held = result.held, .holder = note.pid};
  const auto& wanted = options.request.wish.num_devices;
  if (wanted > 0) request.num_devices = wanted;
  const auto& chosen = options.device.chosen;
  if (!chosen.empty() && std::ranges::find(chosen, "all") == chosen.end()) {
    request.only.emplace();
    for (const auto& choice : device::DeviceSelection::parse(chosen).resolve(result.snapshot)) {
      request.only->push_back(choice.id());
    }
  }
  const auto choose = [&](const std::vector<claim::Heir>& heirs) {
    request.heirs = heirs;
    return claim::choose_inherited(request);
  };
  const bool is_dry = options.request.is_dry;
  const auto positions = is_dry ? std::optional(choose(outer.living_heirs())) : ledger.share(outer, choose);
  if (!positions) {
    throw Error(ErrorCode::kFailedPrecondition, "the claim under which this was started has just ended");
  }
  for (const auto position : *positions) result.allocation.ids.push_back(result.held[static_cast<size_t>(position)]);
  if (!is_dry) result.allocation.claim = std::move(outer);
}

}  // namespace yoke::keep
