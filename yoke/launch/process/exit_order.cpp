#include "yoke/launch/process/exit_order.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <utility>

#include "yoke/base/process.h"

namespace yoke::launch {

void ExitOrder::add(pid_t pid) {
  if (!epoll_) epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  auto child = open_process(pid);
  epoll_event event{.events = EPOLLIN, .data = {.fd = pid}};
  if (child && epoll_ctl(epoll_.value(), EPOLL_CTL_ADD, child.value(), &event) == 0) {
    children_.insert_or_assign(pid, std::move(child));
  }
}

std::vector<pid_t> ExitOrder::take() {
  std::vector<pid_t> result;
  if (children_.empty()) return result;
  std::vector<epoll_event> events(children_.size());
  const int count = epoll_wait(epoll_.value(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const pid_t pid = events[static_cast<size_t>(i)].data.fd;
    const auto child = children_.find(pid);
    if (child == children_.end()) continue;
    // Closing the descriptor does not remove it from epoll_ while another child has a copy of it, before its exec.
    epoll_ctl(epoll_.value(), EPOLL_CTL_DEL, child->second.value(), nullptr);
    children_.erase(child);
    result.push_back(pid);
  }
  return result;
}

}  // namespace yoke::launch
