#include "yoke/keep/fuse_helpers.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string>
#include <string_view>

#include "yoke/base/clock.h"
#include "yoke/base/process.h"
#include "yoke/base/sysfs.h"
#include "yoke/device/process/info.h"

namespace yoke::keep {
namespace {

constexpr std::array<std::string_view, 4> kHelpers = {"squashfuse_ll", "squashfuse", "fuse2fs", "fuse-overlayfs"};

std::optional<device::ProcessStat> stat_of(const std::filesystem::path& folder) {
  return device::parse_process_stat(read_text(folder / "stat").value_or(""));
}

}  // namespace

FuseHelpers::FuseHelpers(pid_t first_program) {
  const auto first = stat_of("/proc/" + std::to_string(first_program));
  if (!first || first->parent_pid <= 1) return;
  for (const auto& [pid, folder] : numbered("/proc")) {
    const auto stat = stat_of(folder);
    if (!stat || stat->parent_pid != first->parent_pid) continue;
    if (std::ranges::find(kHelpers, stat->comm) == kHelpers.end()) continue;
    auto process = open_process(pid);
    const auto now = process ? stat_of(folder) : std::nullopt;  // the PID may have been used again in between
    if (now && now->start_ticks == stat->start_ticks) processes_.push_back(std::move(process));
  }
}

void FuseHelpers::end(std::chrono::milliseconds patience) {
  const auto until = Clock::now() + patience;
  for (const auto& process : processes_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    pollfd ended{process.value(), POLLIN, 0};
    if (poll(&ended, 1, static_cast<int>(std::max<int64_t>(0, left.count()))) > 0) continue;
    syscall(SYS_pidfd_send_signal, process.value(), SIGKILL, nullptr, 0U);
  }
  processes_.clear();
}

}  // namespace yoke::keep
