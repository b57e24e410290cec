#include "yoke/slurm/verify/measure.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "yoke/base/affinity.h"
#include "yoke/base/cgroup_limits.h"

namespace yoke::slurm {
namespace {

constexpr size_t kPiece = 1 << 20;
constexpr size_t kMostBytes = 64 << 20;  // more than a share of the caches
constexpr size_t kMaxThreads = 32;
constexpr std::chrono::milliseconds kDuration{300};

/// Bytes read and written per second. Each thread touches its memory first, so that it is where the policy puts it.
int64_t copy_rate(const std::vector<int64_t>& cpus, int64_t num_ranks) {
  const auto num_threads = std::min(cpus.size(), kMaxThreads);
  const auto num_bytes_each = buffer_bytes(available_memory_bytes(), num_ranks, num_threads);
  struct Buffers {
    std::unique_ptr<char[]> from, to;
  };
  std::vector<Buffers> buffers;  // a thread could not report that there is no memory
  for (size_t i = 0; i < num_threads; ++i) {
    buffers.push_back({std::make_unique_for_overwrite<char[]>(num_bytes_each),
                       std::make_unique_for_overwrite<char[]>(num_bytes_each)});
  }
  std::atomic<size_t> num_ready = 0;
  std::atomic<int64_t> num_bytes = 0;
  std::atomic<bool> is_over = false;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < num_threads; ++i) {
    threads.emplace_back([&, &own = buffers[i], cpu = cpus[i * cpus.size() / num_threads]] {
      prefer_cpus(to_kernel_mask(CpuSet{cpu}));
      std::memset(own.from.get(), 1, num_bytes_each);
      std::memset(own.to.get(), 2, num_bytes_each);
      ++num_ready;
      while (num_ready < num_threads) std::this_thread::yield();
      while (!is_over) {
        for (size_t at = 0; at < num_bytes_each && !is_over; at += kPiece) {
          std::memcpy(own.to.get() + at, own.from.get() + at, kPiece);
          num_bytes += 2 * static_cast<int64_t>(kPiece);
        }
        std::swap(own.from, own.to);
      }
    });
  }
  while (num_ready < num_threads) std::this_thread::yield();
  const auto start = std::chrono::steady_clock::now();
  const auto before = num_bytes.load();
  std::this_thread::sleep_for(kDuration);
  const auto bytes = num_bytes.load() - before;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  is_over = true;
  for (auto& thread : threads) thread.join();
  return static_cast<int64_t>(static_cast<double>(bytes) / seconds.count());
}

/// The CPUs that this process has after it asks for all: those of its control group.
CpuSet widest() {
  CpuSet all;
  for (int64_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) all.add(cpu);
  prefer_cpus(to_kernel_mask(all));
  return allowed_cpus();
}

}  // namespace

size_t buffer_bytes(int64_t available_bytes, int64_t num_ranks, size_t num_threads) {
  const auto share = available_bytes / 4 / std::max<int64_t>(num_ranks, 1) / static_cast<int64_t>(2 * num_threads);
  return std::clamp(static_cast<size_t>(share) / kPiece * kPiece, kPiece, kMostBytes);
}

MemoryMeasured measure_memory(const CpuSet& own, int64_t num_ranks) {
  MemoryMeasured result;
  result.own = copy_rate(own.to_vector(), num_ranks);
  result.num_own = std::min<int64_t>(own.size(), kMaxThreads);
  const auto all = widest();
  if (all.size() > own.size()) {
    result.whole = copy_rate(all.to_vector(), num_ranks);
    result.num_whole = std::min<int64_t>(all.size(), kMaxThreads);
  }
  prefer_cpus(to_kernel_mask(own));
  return result;
}

}  // namespace yoke::slurm
