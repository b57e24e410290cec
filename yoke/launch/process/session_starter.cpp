#include "yoke/launch/process/session_starter.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/launch/process/protocol.h"

namespace yoke::launch {
namespace {

using MessageKind = Message::Kind;

/// Positions of the descriptors in a kStart message. Only rank 0 of the job has kMaster.
enum Descriptor : size_t { kPlan, kIn, kOut, kErr, kFailures, kMaster };

Message start_as_told(const Message& message, const std::vector<UniqueFd>& fds, const rlimit& file_limit) {
  const auto plans = decode_plans(text_of(fds.at(kPlan)));
  const StartOptions options{.in_fd = fds.at(kIn).value(),
                             .out_fd = fds.at(kOut).value(),
                             .err_fd = fds.at(kErr).value(),
                             .master_fd = fds.size() > kMaster ? fds[kMaster].value() : -1,
                             .failures = fds.at(kFailures).value(),
                             .index = message.rank,
                             .file_limit = file_limit};
  const pid_t pid = start_rank(plans.at(0), options, Guard::kParent);
  if (pid < 0) return {.kind = MessageKind::kCannotStart, .rank = message.rank, .value = errno};
  return {.kind = MessageKind::kStarted, .rank = message.rank, .pid = pid};
}

[[noreturn]] void serve_guardian(int socket, pid_t guardian, const rlimit& file_limit) {
  prctl(PR_SET_NAME, "yoke-starter");
  setpgid(0, 0);  // SIGKILL to the launcher's group must not reach the starter
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != guardian) _exit(1);
  try {
    std::vector<UniqueFd> fds;
    while (const auto message = receive_message(socket, &fds)) {
      send_message(socket, start_as_told(*message, fds, file_limit));
      fds.clear();
    }
  } catch (...) {
    _exit(1);  // the guardian sees the end of file
  }
  _exit(0);
}

}  // namespace

SessionStarter::SessionStarter(const rlimit& file_limit, const std::vector<int>& inherited_fds) {
  auto sockets = make_socket_pair();
  socket_ = std::move(sockets.near);
  const auto theirs = std::move(sockets.far);
  const pid_t guardian = getpid();
  pid_ = fork();  // not spawn(): the starter runs the guardian's code, and needs no program on the disk
  if (pid_ < 0) throw system_error(errno, "starting the helper process for ranks that use the terminal");
  if (pid_ > 0) return;
  auto keep = inherited_fds;
  keep.push_back(theirs.value());
  close_all_except(std::move(keep));
  serve_guardian(theirs.value(), guardian, file_limit);
}

std::optional<pid_t> SessionStarter::start_rank(const RankPlan& plan, const StartOptions& options) {
  const auto text = to_descriptor(encode_plans({plan}));
  std::vector<int> fds = {text.value(), options.in_fd, options.out_fd, options.err_fd, options.failures};
  if (options.master_fd >= 0) fds.push_back(options.master_fd);
  send_message(socket_.value(), {.kind = MessageKind::kStart, .rank = options.index}, fds);
  const auto reply = receive_message(socket_.value());
  if (!reply) return std::nullopt;
  if (reply->kind == MessageKind::kStarted) return reply->pid;
  errno = reply->value;
  return -1;
}

}  // namespace yoke::launch
