// yoke/profile/phases.h -- the parts into which a rank's step is divided, for comparisons of two trainings.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace yoke::profile {

/// Each piece of a step belongs to one phase, so phases add up to the step. docs/profile.md says what each one has.
enum class Phase : uint8_t {
  kLoading,
  kForward,   ///< Without a device.
  kBackward,  ///< Without a device.
  kMatmul,    ///< Of a device, as are the next two.
  kMemoryBound,
  kKernels,
  kCopies,
  kOptimizer,
  kCommunication,
  kWaiting,  ///< For other ranks. A trace of one rank cannot tell it from communication; the comparison of all can.
  kRest,
};
inline constexpr size_t kNumPhases = 11;

struct PhaseNames {
  std::string_view name;   ///< "data_loading"
  std::string_view where;  ///< "in the data loader"
};
inline constexpr std::array<PhaseNames, kNumPhases> kPhaseNames = {{
    {"data_loading", "in the data loader"},
    {"forward", "in forward"},
    {"backward", "in backward"},
    {"matmul_float32", "in matrix products in float32"},
    {"memory_bound", "in elementwise kernels, reductions and normalizations"},
    {"other_kernels", "in other kernels"},
    {"device_copy", "in copies"},
    {"optimizer", "in the optimizer"},
    {"communication", "in communication"},
    {"waiting", "in waiting for other ranks"},
    {"rest", "in time that the traces do not explain"},
}};
inline const PhaseNames& names_of(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }

}  // namespace yoke::profile
