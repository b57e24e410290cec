#include "yoke/contract/amd_driver.h"

#include <fmt/format.h>

#include <fstream>
#include <string>
#include <system_error>

namespace yoke {
namespace {

namespace fs = std::filesystem;

bool has_simd_units(const fs::path& properties) {
  std::ifstream file(properties);
  std::string name;
  int64_t value = 0;
  while (file >> name >> value) {
    if (name == "simd_count") return value > 0;
  }
  return false;  // reading also fails if the devices cgroup of this process hides the node
}

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
  std::error_code error;
  for (fs::directory_iterator node(sysroot / "sys/class/kfd/kfd/topology/nodes", error), end; !error && node != end;
       node.increment(error)) {
    if (has_simd_units(node->path() / "properties")) ++num_gpus;
  }
  if (num_gpus == 0) return {0, "no AMD GPU (KFD lists none)"};
  if (!fs::exists(sysroot / "dev/kfd", error)) {
    return {
        0, fmt::format("KFD lists {} AMD GPU{}, but /dev/kfd does not exist here", num_gpus, num_gpus == 1 ? "" : "s")};
  }
  if (const auto* variable = what_hides_all(environment)) return {0, fmt::format("{} hides every AMD GPU", variable)};
  return {num_gpus, ""};
}

}  // namespace yoke
