#include "yoke/contract/amd_driver.h"

#include <fmt/format.h>

#include "yoke/base/format.h"
#include "yoke/base/sysfs.h"

namespace yoke {
namespace {

namespace fs = std::filesystem;

/// Returns the variable that hides every GPU, or nullptr if none does. An empty list hides all GPUs from ROCr, but none
/// from HIP. In both, a negative number ends the list, so a list that begins with one is empty (docs/visible.md).
const char* what_hides_all(const Environment& environment) {
  const auto rocr = environment.find("ROCR_VISIBLE_DEVICES"), hip = environment.find("HIP_VISIBLE_DEVICES");
  if (rocr && (rocr->empty() || rocr->starts_with('-'))) return "ROCR_VISIBLE_DEVICES";
  if (hip && hip->starts_with('-')) return "HIP_VISIBLE_DEVICES";
  return nullptr;
}

}  // namespace

DriverProbe probe_amd_driver(const Environment& environment, const fs::path& sysroot) {
  int64_t num_gpus = 0;
  for (const auto& [number, node] : numbered(sysroot / "sys/class/kfd/kfd/topology/nodes")) {
    // The file cannot be read if the devices cgroup of this process hides the node.
    const auto properties = parse_properties(text_of(node / "properties"));
    const auto units = properties.find("simd_count");
    if (units != properties.end() && units->second > 0) ++num_gpus;
  }
  if (num_gpus == 0) return {0, "no AMD GPU (KFD lists none)"};
  if (!is_there(sysroot / "dev/kfd")) {
    return {0, fmt::format("KFD lists {}, but /dev/kfd does not exist here", counted(num_gpus, "AMD GPU"))};
  }
  if (const auto* variable = what_hides_all(environment)) return {0, fmt::format("{} hides every AMD GPU", variable)};
  return {num_gpus, ""};
}

}  // namespace yoke
