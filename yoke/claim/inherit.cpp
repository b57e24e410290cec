#include "yoke/claim/inherit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke::claim {

std::vector<int64_t> choose_inherited(const InheritRequest& request) {
  const auto& held = request.held;
  const auto claim = fmt::format("the claim under which this runs (process {}) has {} {}", request.holder,
                                 held.size() == 1 ? "device" : "devices", fmt::join(held, ", "));
  constexpr const char* kNext = "nothing else was claimed; take some of these, or start it outside of this claim";
  std::vector<int64_t> positions;
  const auto add = [&](const std::string& id) {
    const auto at = std::ranges::find(held, id);
    if (at == held.end()) {
      throw Error(ErrorCode::kFailedPrecondition, "device {} is wanted, and {}; {}", id, claim, kNext);
    }
    positions.push_back(at - held.begin());
  };
  for (const auto& id : request.only.value_or(held)) add(id);
  const auto num_devices = request.num_devices.value_or(static_cast<int64_t>(positions.size()));
  if (num_devices > static_cast<int64_t>(positions.size())) {
    throw Error(ErrorCode::kFailedPrecondition, "{} devices are wanted, and {}; {}", num_devices, claim, kNext);
  }
  const auto num_heirs = [&](int64_t position) {
    return std::ranges::count_if(request.heirs, [&](const Heir& heir) {
      return std::ranges::find(heir.positions, position) != heir.positions.end();
    });
  };
  std::ranges::stable_sort(positions, [&](int64_t a, int64_t b) { return num_heirs(a) < num_heirs(b); });
  positions.resize(static_cast<size_t>(num_devices));
  std::ranges::sort(positions);
  return positions;
}

}  // namespace yoke::claim
