#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "yoke/base/text.h"
#include "yoke/base/user_socket.h"
#include "yoke/contract/variables.h"
#include "yoke/device/process/info.h"
#include "yoke/profile/record_session.h"

namespace yoke::profile {
namespace {

namespace fs = std::filesystem;

/// A process that is younger than this may still have to load libtorch.
constexpr std::chrono::seconds kTimeToLoad{5};

bool is_young(int64_t pid) {
  const auto started = device::describe_process(pid).started_at;
  return started && std::chrono::system_clock::now() - *started < kTimeToLoad;
}

/// Why a process that runs has no socket, if waiting for its first step does not help.
std::optional<Error> refusal(int64_t pid) {
  const auto root = fs::path("/proc") / std::to_string(pid);
  const auto read = [](const fs::path& path) -> std::string {
    try {
      return read_file(path);
    } catch (const Error&) {
      return "";
    }
  };
  std::error_code error;
  const auto program = fs::read_symlink(root / "exe", error).filename().native();
  const auto environment = '\0' + read(root / "environ");
  if (environment.find(fmt::format("{}{}=off", '\0', variable::kProfile)) != environment.npos) {
    return Error(ErrorCode::kFailedPrecondition,
                 "process {} was started with {}=off; start it without that variable to profile it", pid,
                 variable::kProfile);
  }
  if (program.starts_with("python")) {
    return Error(ErrorCode::kFailedPrecondition,
                 "process {} runs Python, which cannot be asked while it runs; start it as `yoke profile -- CMD`", pid);
  }
  const auto maps = read(root / "maps");
  if (maps.empty() && !is_young(pid)) {
    return Error(ErrorCode::kFailedPrecondition,
                 "process {} does not listen for `yoke profile`, and the kernel does not tell which libraries it has "
                 "loaded; only programs on yoke can be asked",
                 pid);
  }
  if (!maps.empty() && maps.find("/libtorch") == maps.npos && !is_young(pid)) {
    return Error(ErrorCode::kFailedPrecondition,
                 "process {} ({}) is not a program on yoke: it has not loaded libtorch; of `yoke run`, name the job: "
                 "--job {}",
                 pid, printable(program), pid);
  }
  return std::nullopt;
}

/// Errors  kNotFound: there is no such process; kPermissionDenied: it belongs to another user.
AskedProgram describe(int64_t pid) {
  const auto info = device::describe_process(pid);
  if (!info.is_visible.value_or(false) || info.state == 'Z') {
    throw Error(ErrorCode::kNotFound, "there is no process {} here", pid);
  }
  if (info.uid != geteuid()) {
    throw Error(ErrorCode::kPermissionDenied, "process {} belongs to {}, and only that user may profile it", pid,
                printable(info.user));
  }
  return {pid, info.start_ticks.value_or(0)};
}

bool is_descendant(int64_t pid, int64_t ancestor) {
  for (int depth = 0; pid > 1 && depth < 64; ++depth) {
    if (pid == ancestor) return true;
    pid = device::describe_process(pid).parent_pid.value_or(0);
  }
  return false;
}

/// The socket of `pid`, or of its descendant that has one, if `pid` is a script that started the training.
/// Errors  kInvalidArgument: several descendants have one.
std::optional<UserSocket> socket_of(int64_t pid) {
  std::vector<UserSocket> below;
  for (const auto& socket : list_user_sockets(kProfiledService, geteuid())) {
    if (socket.uid != geteuid()) continue;
    if (socket.pid == pid) return socket;
    if (is_descendant(socket.pid, pid)) below.push_back(socket);
  }
  if (below.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "process {} has started {} programs on yoke; name one of them, such as {}, or of `yoke run` the job: "
                "--job {}",
                pid, below.size(), below.front().pid, pid);
  }
  return below.empty() ? std::nullopt : std::optional(below.front());
}

class RunningPrograms {
 public:
  RunningPrograms(const RecordOptions& options, const RunningOptions& running)
      : options_(running), session_(options, running.pids.size()) {}

  int run() {
    signal(SIGPIPE, SIG_IGN);      // the folder is removed first
    auto waiting = options_.pids;  // those that have not been asked
    const auto& recording = session_.recorder.recording();
    while (!recording.is_complete()) {
      std::erase_if(waiting, [&](int64_t pid) { return ask(pid); });
      session_.recorder.handle();
      if (recording.failure()) throw Error(ErrorCode::kFailedPrecondition, "{}", *recording.failure());
      const auto silence = std::chrono::steady_clock::now() - session_.recorder.last_news();
      if (silence > std::chrono::duration<double>(options_.timeout_s)) throw late();
      tell(recording.progress());
      session_.wait_for_news(std::chrono::milliseconds(waiting.empty() ? 200 : 50));
      while (const auto message = session_.messages.next()) {
        if (message->signal != SIGCHLD) return 128 + message->signal;
      }
    }
    tell("");
    return options_.on_recorded(session_.take_traces());
  }

 private:
  void tell(const std::string& text) const {
    if (options_.on_progress) options_.on_progress(text);
  }

  /// Returns false if the program does not listen yet.
  bool ask(int64_t pid) {
    const auto info = describe(pid);
    const auto socket = socket_of(pid);
    UniqueFd fd;
    if (!socket || connect_to(*socket, fd) != Connected::kYes) {
      if (const auto error = refusal(pid)) throw *error;
      return false;
    }
    session_.recorder.ask(LineConnection(std::move(fd)), socket->pid == pid ? info : describe(socket->pid));
    return true;
  }

  Error late() const {
    return {ErrorCode::kTimeout,
            "no step ended in {:.0f} s ({}); `yoke stack` shows where the ranks of a job hang, and --timeout waits "
            "longer",
            options_.timeout_s, session_.recorder.recording().progress()};
  }

  const RunningOptions& options_;
  RecordSession session_;
};

}  // namespace

int record_running(const RecordOptions& options, const RunningOptions& running) {
  return RunningPrograms(options, running).run();
}

}  // namespace yoke::profile
