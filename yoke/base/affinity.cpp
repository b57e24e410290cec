#include "yoke/base/affinity.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>

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

CpuSet allowed_cpus() {
  // sched_getaffinity() fails if the mask is smaller than the kernel's, and some machines have more than 1024 CPUs.
  for (int size = 1024; size <= CpuSet::kMaxCpus; size *= 4) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(CPU_ALLOC(size), [](cpu_set_t* set) { CPU_FREE(set); });
    const size_t bytes = CPU_ALLOC_SIZE(size);
    if (sched_getaffinity(0, bytes, mask.get()) != 0) continue;
    CpuSet result;
    for (int cpu = 0; cpu < size; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, mask.get())) result.add(cpu);
    }
    return result;
  }
  return {0};
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
