#include "yoke/profile/record.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>

#include "yoke/base/clock.h"
#include "yoke/base/signal_name.h"
#include "yoke/base/text.h"
#include "yoke/base/user_socket.h"
#include "yoke/contract/variables.h"
#include "yoke/device/process/info.h"
#include "yoke/launch/process/descendants.h"
#include "yoke/profile/recorder.h"
#include "yoke/program/private_folder.h"
#include "yoke/program/watched_program.h"

namespace yoke::profile {
namespace {

namespace fs = std::filesystem;

/// How long a program may take to end after the recording. It may write a checkpoint.
constexpr std::chrono::seconds kGrace{30};
/// A process that is younger than this may still have to load libtorch.
constexpr std::chrono::seconds kTimeToLoad{5};

/// The folder in which traces stay. If it was made here and stays empty, it is removed at the end.
class OutFolder {
 public:
  /// `path`: "" for none.  Errors  kFailedPrecondition: there are traces in it already; as errno says: it cannot be
  /// made.
  explicit OutFolder(const std::string& path) {
    if (path.empty()) return;
    path_ = fs::absolute(path);
    std::error_code error;
    is_new_ = fs::create_directories(path_, error);
    const auto entries = error ? fs::directory_iterator() : fs::directory_iterator(path_, error);
    if (error) throw system_error(error.value(), "--out " + printable(path));
    for (const auto& entry : entries) {
      const auto name = entry.path().filename().native();
      if (!name.ends_with(".json") && !name.ends_with(".json.gz")) continue;
      throw Error(ErrorCode::kFailedPrecondition,
                  "--out {}: the folder has {} already; name another folder, so that two recordings do not mix",
                  printable(path), printable(name));
    }
  }
  OutFolder(const OutFolder&) = delete;
  OutFolder& operator=(const OutFolder&) = delete;
  ~OutFolder() {
    std::error_code ignored;
    if (is_new_) fs::remove(path_, ignored);
  }

  /// Where the folder of the ranks is made: in this one if there is one, so that traces are moved and not copied.
  fs::path parent_of_traces(const Environment& environment) const {
    return path_.empty() ? fs::path(environment.value_or("TMPDIR", "/tmp")) : path_;
  }

 private:
  fs::path path_;
  bool is_new_ = false;
};

/// What a recording needs, whoever started the programs: signals, folders, connections.
struct RecordSession {
  /// `num_asked`: of the programs that run already; 0: one is started.
  RecordSession(const RecordOptions& options, size_t num_asked)
      : out_path(options.out),
        out(options.out),
        folder(out.parent_of_traces(options.environment), "profile"),
        recorder({.folder = folder.path().native(),
                  .wait = options.wait.value_or(num_asked > 0 ? 0 : 5),
                  .warmup = num_asked > 0 ? 1 : 2,
                  .active = options.num_steps,
                  .detail = options.detail,
                  .num_asked = num_asked}) {}

  /// Waits until a rank says something or a signal arrives.
  void wait_for_news(std::chrono::milliseconds limit) const {
    std::vector<pollfd> polls = {{messages.fd(), POLLIN, 0}};
    recorder.add_to(polls);
    poll(polls.data(), polls.size(), static_cast<int>(limit.count()));
  }

  /// The traces, which are first moved to where they stay.
  Traces take_traces() const {
    Traces traces;
    for (const fs::path trace : recorder.recording().traces()) {
      traces.push_back(trace);
      if (out_path.empty()) continue;
      traces.back() = fs::path(out_path) / trace.filename();
      std::error_code error;
      fs::rename(trace, traces.back(), error);
      if (error) throw system_error(error.value(), "moving a trace to " + traces.back().native());
    }
    return traces;
  }

  program::SignalMessages messages;  // before the folder, so that a signal cannot end this process without removing it
  const std::string out_path;
  const OutFolder out;
  const program::PrivateFolder folder;
  Recorder recorder;
};

Environment observed(Environment environment, const std::string& socket) {
  environment.set(variable::kProfile, socket);
  // Kineto complains on standard error where it finds no GPU; yoke reports errors itself.
  if (!environment.contains("KINETO_LOG_LEVEL")) environment.set("KINETO_LOG_LEVEL", "99");
  return environment;
}

/// A program of the user, from its start to its end.
class ProfiledProgram {
 public:
  ProfiledProgram(const RecordOptions& options, const ProgramOptions& program)
      : options_(program),
        session_(options, 0),
        program_(program.argv, {.environment = observed(options.environment, session_.recorder.listen()).to_strings(),
                                .out = program.out}) {}

  int run() {
    // A report that nobody reads is an error and ends nothing. The program has its own setting, because it exists.
    signal(SIGPIPE, SIG_IGN);
    launch::become_subreaper();
    if (const int error = program_.start(); error != 0) {
      options_.on_recorded({.failure = system_error(error, "cannot run " + options_.argv[0])});
      return error == ENOENT ? 127 : 126;
    }
    while (!program_.status()) {
      session_.wait_for_news(std::chrono::milliseconds(is_stopping_ ? 100 : 1000));
      pass_signals();
      follow();
      program_.reap();
    }
    follow();
    if (!is_over_) result_ = options_.on_recorded({.failure = without_traces()});
    if (is_stopping_) return result_;
    return *program_.status() != 0 ? *program_.status() : result_;
  }

 private:
  void pass_signals() {
    while (const auto message = session_.messages.next()) {
      // Signals from the terminal reach the program, too.
      if (message->signal != SIGCHLD && message->is_from_process) kill(program_.pid(), message->signal);
    }
    if (is_stopping_ && Clock::now() > kill_at_) kill(program_.pid(), SIGKILL);
  }

  void follow() {
    session_.recorder.handle();
    const auto& recording = session_.recorder.recording();
    if (is_over_ || !(recording.is_complete() || recording.failure())) return;
    is_over_ = true;
    result_ = options_.on_recorded(recorded());
    if (!options_.stops) return;
    is_stopping_ = true;
    kill_at_ = Clock::now() + kGrace;
    launch::signal_descendants(getpgrp(), SIGTERM);
  }

  Recorded recorded() const {
    const auto& recording = session_.recorder.recording();
    if (!recording.is_complete()) {
      return {.failure = Error(ErrorCode::kFailedPrecondition, "{}", *recording.failure())};
    }
    try {
      return {.traces = session_.take_traces()};
    } catch (const Error& error) {
      return {.failure = error};
    }
  }

  Error without_traces() const {
    const int status = *program_.status();
    if (session_.recorder.recording().has_rank()) {
      return {ErrorCode::kFailedPrecondition,
              "{} before the recording was complete: {}; --wait and --steps make it shorter",
              status == 0 ? "the program ended" : describe_end(status), session_.recorder.recording().progress()};
    }
    if (status != 0) return {ErrorCode::kFailedPrecondition, "{} before a step was seen", describe_end(status)};
    return {ErrorCode::kFailedPrecondition,
            "no step was seen, because no optimizer of yoke or torch.optim made one on this host; a C++ program with "
            "another optimizer calls yoke::train::end_step() after each step, and a container needs the variables "
            "{} and PYTHONPATH, this network namespace and {}",
            variable::kProfile, session_.folder.path().parent_path().native()};
  }

  const ProgramOptions& options_;
  RecordSession session_;
  program::WatchedProgram program_;
  bool is_over_ = false;      ///< The traces were handed over, or why there are none.
  bool is_stopping_ = false;  ///< The program was told to end.
  int result_ = 0;
  Clock::time_point kill_at_;
};

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
      options_.on_progress(recording.progress());
      session_.wait_for_news(std::chrono::milliseconds(waiting.empty() ? 200 : 50));
      while (const auto message = session_.messages.next()) {
        if (message->signal != SIGCHLD) return 128 + message->signal;
      }
    }
    options_.on_progress("");
    return options_.on_recorded(session_.take_traces());
  }

 private:
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

int record_program(const RecordOptions& options, const ProgramOptions& program) {
  return ProfiledProgram(options, program).run();
}

int record_running(const RecordOptions& options, const RunningOptions& running) {
  return RunningPrograms(options, running).run();
}

}  // namespace yoke::profile
