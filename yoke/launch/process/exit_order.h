// yoke/launch/process/exit_order.h -- tells in which order children ended.
#pragma once

#include <sys/types.h>

#include <unordered_map>
#include <vector>

#include "yoke/base/file.h"

namespace yoke::launch {

/// A failed rank makes others fail within microseconds. waitpid() returns ended children in the order in which they
/// were started. epoll returns pidfds in the order in which their processes ended, because each is appended to the list
/// of ready descriptors at that moment. A process closes its files a moment before it counts as ended, so on a busy
/// machine another one that sees the closed connection may still end first.
class ExitOrder {
 public:
  /// REQUIRES: `pid` is a child of this process that has not been reaped.
  void add(pid_t pid);
  /// Returns the children that have ended and were not returned before, the first one first. A child without a pidfd
  /// (no descriptors left, a kernel older than 5.3) is never returned.
  std::vector<pid_t> take();

 private:
  UniqueFd epoll_;
  std::unordered_map<pid_t, UniqueFd> children_;
};

}  // namespace yoke::launch
