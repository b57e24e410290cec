#include "yoke/launch/guardian.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <unordered_map>

#include "yoke/launch/descendants.h"
#include "yoke/launch/protocol.h"
#include "yoke/launch/rank_process.h"

namespace yoke::launch {
namespace {

/// Processes with much GPU or pinned memory take seconds to be taken apart by the kernel.
constexpr std::chrono::seconds kPatience{10};

/// Helpers that clean up after a rank (Python's resource_tracker, torch_shm_manager) end by themselves once it is gone;
/// killed at once they would leave shared memory behind.
constexpr std::chrono::milliseconds kCourtesy{300};

class Guardian {
 public:
  explicit Guardian(GuardianOptions options) : options_(std::move(options)) {}

  void run() {
    detach();
    start();
    while (is_launcher_there_ && !is_over()) {
      pollfd polls[] = {
          {options_.control.value(), POLLIN, 0}, {child_signals_.value(), POLLIN, 0}, {failures_.value(), POLLIN, 0}};
      // A child of a child that ends tells nobody: while waiting for the last of a stopped group, look now and then.
      poll(polls, 3, ranks_.empty() ? 50 : -1);
      if (polls[0].revents != 0) obey();
      if (polls[2].revents != 0) tell_failures();  // before its exit: the cause first
      reap();
    }
    for (const auto& process : end_descendants({}, kPatience)) {
      tell({.kind = Message::Kind::kLeftBehind, .pid = process.pid});
    }
    tell({.kind = Message::Kind::kDone});
    await_release();
  }

 private:
  void await_release() {
    while (const auto message = receive_message(options_.control.value())) {
      if (message->kind == Message::Kind::kRelease) return;
    }
    std::error_code ignored;
    if (!options_.folder.empty()) std::filesystem::remove_all(options_.folder, ignored);
  }

  void tell(const Message& message) const { send_message(options_.control.value(), message); }

  void detach() {
    setsid();
    prctl(PR_SET_NAME, "yoke-guardian");
    become_subreaper();
    // Nobody speaks to the guardian but its launcher: a scheduler that signals every process of a job must not end it
    // before the ranks have had their grace.
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    signal(SIGCHLD, SIG_DFL);  // ignored, it would reap the ranks behind our back
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    child_signals_ = UniqueFd(signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  void start() {
    if (!options_.folder.empty()) mkdir(options_.folder.c_str(), 0700);  // of the first attempt, it is there already
    auto failures = make_pipe();
    const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    const auto& plans = *options_.ranks;
    for (size_t i = 0; i < plans.size(); ++i) {
      const auto rank = static_cast<int32_t>(plans[i].rank);
      auto& output = options_.outputs[i];
      const auto fd_of = [&](const StreamPlan& stream, const UniqueFd& fd) {
        return fd || stream.is_own ? fd.value() : null.value();
      };
      const pid_t pid = start_rank(plans[i], {.out_fd = fd_of(plans[i].out, output.out),
                                              .err_fd = fd_of(plans[i].err, output.err),
                                              .null_fd = plans[i].inherits_stdin ? -1 : null.value(),
                                              .failures = failures.write_end.value(),
                                              .file_limit = options_.file_limit});
      const int error_number = errno;
      output = {};  // the reader must see the end of file when the rank is gone
      if (pid < 0) {
        tell({.kind = Message::Kind::kCannotStart, .rank = rank, .value = error_number});
        break;
      }
      ranks_.emplace(pid, rank);
      groups_.push_back(pid);
      tell({.kind = Message::Kind::kStarted, .rank = rank, .pid = pid});
    }
    options_.outputs.clear();
    for (const int fd : options_.close_after_start) close(fd);
    for (const int stream : {0, 1, 2}) dup2(null.value(), stream);
    fcntl(failures.read_end.value(), F_SETFL, O_NONBLOCK);
    failures_ = std::move(failures.read_end);
  }

  void obey() {
    const auto message = receive_message(options_.control.value());
    if (!message) {
      is_launcher_there_ = false;
      return;
    }
    if (message->kind == Message::Kind::kKill) {
      must_kill_ = true;
      return;
    }
    if (message->kind == Message::Kind::kSignal) is_stopping_ = true;
    signal_groups(message->value);
  }

  void signal_groups(int signal) const {
    // The number of a group stays taken while it has a member: an unreaped rank, or a child that it left.
    const auto left = groups_.size() == ranks_.size() ? std::vector<pid_t>() : groups_of_leftovers();
    for (const pid_t group : groups_) {
      if (ranks_.contains(group)) {
        // Between its fork and its setsid a rank is still in our group; the signal waits for it, blocked, until exec.
        if (kill(-group, signal) != 0) kill(group, signal);
      } else if (std::find(left.begin(), left.end(), group) != left.end()) {
        kill(-group, signal);
      }
    }
  }

  /// Groups whose rank is gone and that still have a member.
  std::vector<pid_t> groups_of_leftovers() const {
    std::vector<pid_t> result;
    for (const auto& process : descendants()) {
      if (!process.is_zombie && std::find(groups_.begin(), groups_.end(), process.group) != groups_.end()) {
        result.push_back(process.group);
      }
    }
    return result;
  }

  void tell_failures() {
    ExecFailure failure;
    ssize_t count = 0;
    while ((count = read(failures_.value(), &failure, sizeof failure)) == sizeof failure) {
      tell({.kind = Message::Kind::kCannotRun, .rank = failure.rank, .value = failure.error_number});
    }
    if (count == 0) failures_.reset();  // every rank has passed exec
  }

  void reap() {
    signalfd_siginfo ignored;
    while (read(child_signals_.value(), &ignored, sizeof ignored) > 0) {
    }
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto rank = ranks_.find(pid);
      if (rank == ranks_.end()) continue;  // an orphan
      if (failures_) tell_failures();
      tell({.kind = Message::Kind::kExited, .rank = rank->second, .pid = pid, .value = status});
      ranks_.erase(rank);
    }
  }

  bool is_over() {
    if (must_kill_) return true;
    if (!ranks_.empty()) return false;
    if (!has_children()) return true;
    // A rank that was a shell ends at the signal; the program below it may still be saving its work.
    if (is_stopping_ && !groups_of_leftovers().empty()) return false;
    if (!courtesy_until_) courtesy_until_ = std::chrono::steady_clock::now() + kCourtesy;
    return std::chrono::steady_clock::now() >= *courtesy_until_;
  }

  GuardianOptions options_;
  UniqueFd child_signals_;
  UniqueFd failures_;
  std::unordered_map<pid_t, int32_t> ranks_;  ///< Alive, or not yet reaped.
  std::vector<pid_t> groups_;
  bool is_launcher_there_ = true;
  bool is_stopping_ = false;
  bool must_kill_ = false;
  std::optional<std::chrono::steady_clock::time_point> courtesy_until_;
};

}  // namespace

void guard(GuardianOptions options) {
  try {
    Guardian(std::move(options)).run();
  } catch (...) {
    _exit(1);  // the ranks have their death signal, and the launcher its end of file
  }
  _exit(0);  // not exit(): the launcher's atexit handlers are not ours
}

}  // namespace yoke::launch
