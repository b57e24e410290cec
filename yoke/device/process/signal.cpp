#include "yoke/device/process/signal.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/sysfs.h"
#include "yoke/device/process/info.h"

namespace yoke::device {
namespace {

Error has_ended(int64_t pid) { return {ErrorCode::kNotFound, "process {} has ended", pid}; }

}  // namespace

ProcessHandle::ProcessHandle(int64_t pid, int64_t start_ticks, const std::filesystem::path& proc) : pid_(pid) {
  if (pid <= 0) throw has_ended(pid);
  fd_ = open_process(pid);
  if (!fd_) {
    if (errno == ESRCH) throw has_ended(pid);
    if (errno == ENOSYS || errno == EPERM) {  // EPERM: a container's seccomp filter does not know the system call
      throw Error(ErrorCode::kFailedPrecondition,
                  "process {}: this kernel or container has no pidfds, without which the wrong process might be hit",
                  pid);
    }
    throw system_error(errno, fmt::format("opening process {}", pid));
  }
  // The start time is read after the pidfd was opened. If it equals `start_ticks`, the PID was not reused in between,
  // and the pidfd refers to the right process.
  const auto stat = parse_process_stat(text_of(proc / fmt::format("{}", pid) / "stat"));
  if (!stat || stat->start_ticks != start_ticks) throw has_ended(pid);
}

void ProcessHandle::signal(int number) const {
  if (syscall(SYS_pidfd_send_signal, fd_.value(), number, nullptr, 0U) == 0) return;
  if (errno == ESRCH) throw has_ended(pid_);
  if (errno == EPERM) {
    throw Error(ErrorCode::kPermissionDenied, "process {} belongs to another user; only its owner or root may end it",
                pid_);
  }
  throw system_error(errno, fmt::format("sending signal {} to process {}", number, pid_));
}

bool ProcessHandle::wait_for_end(std::chrono::milliseconds limit) const {
  const auto until = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd ended{fd_.value(), POLLIN, 0};
    const int count = poll(&ended, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
    if (count > 0) return true;
    if (count == 0 || errno != EINTR) return false;
  }
}

}  // namespace yoke::device
