// yoke/launch/plan/bind.h -- which CPUs and which memory each rank of a node gets. Pure: touches nothing. docs/bind.md
// has the rules, and where they differ from mpibind and torchrun.
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
    kAuto,    ///< As kNode; ranks without a device may have several nodes; not at all where nothing is nearer.
    kNone,    ///< Each rank may use every allowed CPU.
    kNode,    ///< Within the NUMA node of its device.
    kSocket,  ///< Within the package.
    kCache,   ///< Within one last-level cache.
    kMasks,   ///< As given.
  };
  Kind kind = Kind::kAuto;
  std::vector<CpuSet> masks;  ///< One for each rank.

  bool operator==(const BindMode&) const = default;
};

/// "auto", "none", "node", "socket", "cache", "mask:0xfe,0xfe00" or "cpus:1-7,9-15"; "cpus:1-3+65-67,..." where a rank
/// has several ranges.
/// Errors  kInvalidArgument, naming the entry.
BindMode parse_bind_mode(std::string_view text);

struct RankBinding {
  CpuSet cpus;
  CpuSet memory_nodes;      ///< To be preferred for its memory; empty: leave it to the kernel.
  int64_t num_threads = 1;  ///< For OMP_NUM_THREADS: the cores that are its own, not their hardware threads.

  bool operator==(const RankBinding&) const = default;
};

struct Binding {
  std::vector<RankBinding> ranks;     ///< By local rank.
  bool is_bound = false;              ///< False: nothing is to be set but num_threads.
  std::string reason;                 ///< A sentence for people: what was decided, and why.
  std::vector<std::string> warnings;  ///< What is worse than it could be, a sentence each.
};

/// `devices` has an element for each local rank; nullopt: a rank without a device.
/// Errors  kInvalidArgument: fewer masks than ranks, or one of them has no allowed CPU.
Binding plan_binding(const BindMode& mode, const device::CpuLocality& machine,
                     const std::vector<std::optional<device::DeviceLocality>>& devices);

}  // namespace yoke::launch
