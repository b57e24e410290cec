#include "yoke/base/affinity.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace yoke {

KernelMask to_kernel_mask(const CpuSet& set) {
  constexpr size_t kBits = 8 * sizeof(KernelMask::value_type);
  KernelMask mask;
  for (const auto number : set.to_vector()) {
    const auto word = static_cast<size_t>(number) / kBits;
    if (mask.size() <= word) mask.resize(word + 1);
    mask[word] |= 1UL << (static_cast<size_t>(number) % kBits);
  }
  return mask;
}

void prefer_cpus(const KernelMask& cpus) {
  if (!cpus.empty()) syscall(SYS_sched_setaffinity, 0, cpus.size() * sizeof cpus[0], cpus.data());
}

/// The constants are copied from linux/mempolicy.h. Linux before 5.15 lacks MPOL_PREFERRED_MANY and can prefer only one
/// node.
void prefer_memory(const KernelMask& nodes) {
  constexpr int kPreferred = 1, kPreferredMany = 5;
  if (nodes.empty()) return;
  const auto num_bits = nodes.size() * 8 * sizeof nodes[0] + 1;  // the kernel subtracts one
  if (syscall(SYS_set_mempolicy, kPreferredMany, nodes.data(), num_bits) != 0) {
    syscall(SYS_set_mempolicy, kPreferred, nodes.data(), num_bits);
  }
}

}  // namespace yoke
