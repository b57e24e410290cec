// yoke/launch/plan/bind.h -- decides which CPUs and which memory each rank of a node gets. Pure. docs/bind.md has the
// rules, and the differences from mpibind and torchrun.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/cpu_set.h"
#include "yoke/device/cpu/locality.h"

namespace yoke::launch {

struct BindMode {
  enum class Kind {
    kAuto,    ///< Like kNode, but a rank without a device may have several nodes, and nothing is bound if all CPUs are
              ///< equally near.
    kNone,    ///< Every rank may use all allowed CPUs.
    kNode,    ///< Each rank gets CPUs within the NUMA node of its device.
    kSocket,  ///< Each rank gets CPUs within the package of its device.
    kCache,   ///< Each rank gets CPUs of one last-level cache.
    kMasks,   ///< Each rank gets its mask from `masks`.
  };
  Kind kind = Kind::kAuto;
  std::vector<CpuSet> masks;  ///< With kMasks: one mask per rank.

  bool operator==(const BindMode&) const = default;
};

/// Parses "auto", "none", "node", "socket", "cache", "mask:0xfe,0xfe00" or "cpus:1-7,9-15". In "cpus:1-3+65-67,..." one
/// rank has several ranges. Errors  kInvalidArgument with the invalid entry.
BindMode parse_bind_mode(std::string_view text);

struct RankBinding {
  CpuSet cpus;
  CpuSet memory_nodes;      ///< NUMA nodes preferred for the rank's memory; empty: the kernel chooses.
  int64_t num_threads = 1;  ///< For OMP_NUM_THREADS: the number of the rank's cores, not hardware threads.

  bool operator==(const RankBinding&) const = default;
};

struct Binding {
  std::vector<RankBinding> ranks;     ///< Indexed by local rank.
  bool is_bound = false;              ///< If false, only num_threads is used.
  std::string reason;                 ///< A sentence for the user: the decision and its reason.
  std::vector<std::string> warnings;  ///< Sentences for the user about ranks that did not get the best CPUs.
};

/// Decides the binding. `devices` has one element per local rank: its device, or nullopt.
/// Errors  kInvalidArgument if there are fewer masks than ranks, or a mask has no allowed CPU.
Binding plan_binding(const BindMode& mode, const device::CpuLocality& machine,
                     const std::vector<std::optional<device::DeviceLocality>>& devices);

}  // namespace yoke::launch
