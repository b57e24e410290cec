#include "yoke/tui/ancestors.h"

#include <mutex>
#include <set>

namespace yoke::tui {

struct AncestorReader::Exchange {
  std::mutex mutex;
  std::set<int64_t> parents;  ///< The parents of the listed processes.
  Processes answer;
};

namespace {

Processes read_chain(const std::set<int64_t>& parents, const std::filesystem::path& proc) {
  Processes known;
  for (auto pid : parents) {
    while (pid > 1 && !known.contains(pid)) {
      const auto& info = known[pid] = device::describe_process(pid, proc);
      pid = info.parent_pid.value_or(0);
    }
  }
  return known;
}

}  // namespace

AncestorReader::AncestorReader(const std::filesystem::path& proc)
    : exchange_(std::make_shared<Exchange>()), worker_([exchange = exchange_, proc] {
        std::set<int64_t> parents;
        {
          const std::lock_guard lock(exchange->mutex);
          parents = exchange->parents;
        }
        auto answer = read_chain(parents, proc);
        const std::lock_guard lock(exchange->mutex);
        exchange->answer = std::move(answer);
      }) {}

Processes AncestorReader::read(const device::Snapshot& snapshot, std::chrono::milliseconds limit) {
  if (!worker_.is_busy()) {
    std::set<int64_t> parents;
    device::for_each_device(snapshot, [&](const device::Device& device, const auto&) {
      for (const auto& process : device.processes) {
        if (process.info.parent_pid) parents.insert(*process.info.parent_pid);
      }
    });
    {
      const std::lock_guard lock(exchange_->mutex);
      exchange_->parents = std::move(parents);
    }
    worker_.request();
    worker_.wait_until(device::Worker::Clock::now() + limit);
  }
  const std::lock_guard lock(exchange_->mutex);
  return exchange_->answer;
}

}  // namespace yoke::tui
