// yoke/tui/ancestors.h -- reads the parents of processes, with a time limit, because /proc may hang.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>

#include "yoke/device/device.h"
#include "yoke/device/worker.h"

namespace yoke::tui {

using Processes = std::map<int64_t, device::ProcessInfo>;  ///< Indexed by PID.

class AncestorReader {
 public:
  explicit AncestorReader(const std::filesystem::path& proc);

  /// Returns the ancestors of all processes in `snapshot`, up to process 1. If /proc does not answer within `limit`,
  /// returns the ancestors from the last answer.
  Processes read(const device::Snapshot& snapshot, std::chrono::milliseconds limit);

 private:
  struct Exchange;
  std::shared_ptr<Exchange> exchange_;
  device::Worker worker_;
};

}  // namespace yoke::tui
