// `yoke profile -- CMD`, `--pid` and `--job`: have traces recorded, and report on them.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <iostream>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/signal_name.h"
#include "yoke/base/text.h"
#include "yoke/base/user_socket.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/progress_line.h"
#include "yoke/cli/frame/recorder.h"
#include "yoke/cli/options/job.h"
#include "yoke/cli/profile.h"
#include "yoke/contract/variables.h"
#include "yoke/device/process/info.h"
#include "yoke/launch/process/descendants.h"
#include "yoke/program/private_folder.h"
#include "yoke/program/watched_program.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

/// How long a program may take to end after --stop. It may write a checkpoint.
constexpr std::chrono::seconds kGrace{30};

/// The folder of --out. If it was made here and stays empty, it is removed at the end.
class OutFolder {
 public:
  explicit OutFolder(const ProfileArgs& args) {
    if (args.out.empty()) return;
    path_ = fs::absolute(args.out);
    std::error_code error;
    is_new_ = fs::create_directories(path_, error);
    const auto entries = error ? fs::directory_iterator() : fs::directory_iterator(path_, error);
    if (error) throw system_error(error.value(), "--out " + printable(args.out));
    for (const auto& entry : entries) {
      const auto name = entry.path().filename().native();
      if (!name.ends_with(".json") && !name.ends_with(".json.gz")) continue;
      throw Error(ErrorCode::kFailedPrecondition,
                  "--out {}: the folder has {} already; name another folder, so that two recordings do not mix",
                  printable(args.out), printable(name));
    }
  }
  OutFolder(const OutFolder&) = delete;
  OutFolder& operator=(const OutFolder&) = delete;
  ~OutFolder() {
    std::error_code ignored;
    if (is_new_) fs::remove(path_, ignored);
  }

  /// Where the folder of the ranks is made: in --out if that is given, so that traces are moved and not copied.
  fs::path parent_of_traces(const Environment& environment) const {
    return path_.empty() ? fs::path(environment.value_or("TMPDIR", "/tmp")) : path_;
  }

 private:
  fs::path path_;
  bool is_new_ = false;
};

profile::RecordingOptions recording_options(const ProfileArgs& args, const program::PrivateFolder& folder,
                                            size_t num_asked) {
  const bool is_running = num_asked > 0;
  return {.folder = folder.path().native(),
          .wait = args.wait.value_or(is_running ? 0 : 5),
          .warmup = is_running ? 1 : 2,
          .active = args.steps,
          .detail = args.light        ? ProfileDetail::kAnnotations
                    : args.has_shapes ? ProfileDetail::kShapes
                                      : ProfileDetail::kOperations,
          .num_asked = num_asked};
}

/// Reads the traces, and moves them to --out first. Traces that do not stay are reported by their names alone.
profile::Report report_of(const Recorder& recorder, const ProfileArgs& args, const Context& context) {
  std::vector<fs::path> paths;
  for (const fs::path trace : recorder.recording().traces()) {
    paths.push_back(trace);
    if (args.out.empty()) continue;
    paths.back() = fs::path(args.out) / trace.filename();
    std::error_code error;
    fs::rename(trace, paths.back(), error);
    if (error) throw system_error(error.value(), "moving a trace to " + paths.back().native());
  }
  auto report = judge_traces(paths, context);
  if (args.out.empty()) {
    for (auto& rank : report.ranks) rank.path = fs::path(rank.path).filename().native();
  }
  return report;
}

void wait_for_news(const program::SignalMessages& messages, const Recorder& recorder, milliseconds limit) {
  std::vector<pollfd> polls = {{messages.fd(), POLLIN, 0}};
  recorder.add_to(polls);
  poll(polls.data(), polls.size(), static_cast<int>(limit.count()));
}

// `yoke profile -- CMD`

Environment observed(const Context& context, const std::string& socket) {
  auto environment = with_python_hooks(context.environment, context.installation);
  environment.set(variable::kProfile, socket);
  // Kineto complains on standard error where it finds no GPU; yoke reports errors itself.
  if (!environment.contains("KINETO_LOG_LEVEL")) environment.set("KINETO_LOG_LEVEL", "99");
  return environment;
}

/// A program of the user, from its start to its end.
class ProfiledProgram {
 public:
  ProfiledProgram(const ProfileArgs& args, Context& context)
      : args_(args),
        context_(context),
        out_(args),
        folder_(out_.parent_of_traces(context.environment), "profile"),
        recorder_(recording_options(args, folder_, 0)),
        program_(context.rest, {.environment = observed(context, recorder_.listen()).to_strings(),
                                .out = args.json ? STDERR_FILENO : kInheritedStream}) {}

  int run() {
    // A report that nobody reads is an error and ends nothing. The program has its own setting, because it exists.
    signal(SIGPIPE, SIG_IGN);
    launch::become_subreaper();
    if (const int error = program_.start(); error != 0) {
      const auto failure = system_error(error, "cannot run " + context_.rest[0]);
      std::cerr << "yoke profile: " << printable(failure.what()) << std::endl;
      return error == ENOENT ? 127 : 126;
    }
    while (!program_.status()) {
      wait_for_news(messages_, recorder_, is_stopping_ ? milliseconds(100) : milliseconds(1000));
      pass_signals();
      follow();
      program_.reap();
    }
    follow();
    if (!is_over_) result_ = report_errors(context_, [&]() -> int { throw without_report(); });
    if (is_stopping_) return result_;
    return *program_.status() != 0 ? *program_.status() : result_;
  }

 private:
  void pass_signals() {
    while (const auto message = messages_.next()) {
      // Signals from the terminal reach the program, too.
      if (message->signal != SIGCHLD && message->is_from_process) kill(program_.pid(), message->signal);
    }
    if (is_stopping_ && Clock::now() > kill_at_) kill(program_.pid(), SIGKILL);
  }

  void follow() {
    recorder_.handle();
    const auto& recording = recorder_.recording();
    if (is_over_ || !(recording.is_complete() || recording.failure())) return;
    is_over_ = true;
    result_ = report_errors(context_, [&] {
      if (!recording.is_complete()) throw Error(ErrorCode::kFailedPrecondition, "{}", *recording.failure());
      print();
      return kExitOk;
    });
    if (!args_.stop) return;
    is_stopping_ = true;
    kill_at_ = Clock::now() + kGrace;
    launch::signal_descendants(getpgrp(), SIGTERM);
  }

  void print() {
    const auto report = report_of(recorder_, args_, context_);
    if (args_.json) {
      context_.out << shown(report, args_, 0) << std::flush;
      return;
    }
    // The program may have left its last line unfinished.
    std::cerr << "\nyoke profile: " << shown(report, args_, output_width(context_));
    if (!args_.out.empty()) std::cerr << "The traces are in " << printable(args_.out) << ".\n";
    std::cerr << std::flush;
  }

  Error without_report() const {
    const int status = *program_.status();
    if (recorder_.recording().has_rank()) {
      return {ErrorCode::kFailedPrecondition,
              "{} before the recording was complete: {}; --wait and --steps make it shorter",
              status == 0 ? "the program ended" : describe_end(status), recorder_.recording().progress()};
    }
    if (status != 0) return {ErrorCode::kFailedPrecondition, "{} before a step was seen", describe_end(status)};
    return {ErrorCode::kFailedPrecondition,
            "no step was seen, because no optimizer of yoke or torch.optim made one on this host; a C++ program with "
            "another optimizer calls yoke::train::end_step() after each step, and a container needs the variables "
            "{} and PYTHONPATH, this network namespace and {}",
            variable::kProfile, folder_.path().parent_path().native()};
  }

  const ProfileArgs& args_;
  Context& context_;
  program::SignalMessages messages_;  // before the folder, so that a signal cannot end this process without removing it
  const OutFolder out_;
  const program::PrivateFolder folder_;
  Recorder recorder_;
  program::WatchedProgram program_;
  bool is_over_ = false;      ///< The report was printed, or why there is none.
  bool is_stopping_ = false;  ///< The program was told to end.
  int result_ = kExitOk;
  Clock::time_point kill_at_;
};

// `yoke profile --pid` and `--job`

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
  RunningPrograms(const ProfileArgs& args, const Context& context, std::vector<int64_t> pids)
      : args_(args),
        context_(context),
        pids_(std::move(pids)),
        out_(args),
        folder_(out_.parent_of_traces(context.environment), "profile"),
        recorder_(recording_options(args, folder_, pids_.size())),
        progress_(context.environment) {}

  /// Returns the signal that ended the recording, or 0.
  int record() {
    signal(SIGPIPE, SIG_IGN);  // the folder is removed first
    auto waiting = pids_;      // those that have not been asked
    const auto& recording = recorder_.recording();
    while (!recording.is_complete()) {
      std::erase_if(waiting, [&](int64_t pid) { return ask(pid); });
      recorder_.handle();
      if (recording.failure()) throw Error(ErrorCode::kFailedPrecondition, "{}", *recording.failure());
      if (Clock::now() - recorder_.last_news() > std::chrono::duration<double>(args_.timeout_s)) throw late();
      progress_.show(recording.progress());
      wait_for_news(messages_, recorder_, waiting.empty() ? milliseconds(200) : milliseconds(50));
      while (const auto message = messages_.next()) {
        if (message->signal != SIGCHLD) return message->signal;
      }
    }
    progress_.clear();
    return 0;
  }

  profile::Report report() const { return report_of(recorder_, args_, context_); }

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
    recorder_.ask(LineConnection(std::move(fd)), socket->pid == pid ? info : describe(socket->pid));
    return true;
  }

  Error late() const {
    return {ErrorCode::kTimeout,
            "no step ended in {:.0f} s ({}); `yoke stack` shows where the ranks of a job hang, and --timeout waits "
            "longer",
            args_.timeout_s, recorder_.recording().progress()};
  }

  const ProfileArgs& args_;
  const Context& context_;
  const std::vector<int64_t> pids_;
  program::SignalMessages messages_;  // before the folder, so that a signal cannot end this process without removing it
  const OutFolder out_;
  const program::PrivateFolder folder_;
  Recorder recorder_;
  ProgressLine progress_;
};

/// The ranks of a job that run on this host. The others cannot be asked, which `note` says.
std::vector<int64_t> local_ranks(const std::string& name, std::string& note) {
  const auto job = open_job(name).job;
  std::vector<int64_t> pids;
  for (const auto& rank : job.ranks) {
    if (rank.host == job.host && rank.is_up()) pids.push_back(rank.pid);
  }
  if (pids.empty()) throw Error(ErrorCode::kFailedPrecondition, "job {} has no rank that runs on this host", job.pid);
  const auto num_others = static_cast<int64_t>(job.ranks.size() - pids.size());
  if (num_others > 0) {
    note = fmt::format("{} ranks of job {} are not asked, because they run on other hosts or have ended", num_others,
                       job.pid);
  }
  return pids;
}

}  // namespace

int profile_program(const ProfileArgs& args, Context& context) { return ProfiledProgram(args, context).run(); }

int profile_running(const ProfileArgs& args, Context& context) {
  std::string note;
  const auto pids = args.pid != 0 ? std::vector<int64_t>{args.pid} : local_ranks(args.job, note);
  if (!note.empty()) std::cerr << "yoke profile: " << note << std::endl;
  RunningPrograms programs(args, context, pids);
  if (const int signal = programs.record(); signal != 0) return 128 + signal;
  context.out << shown(programs.report(), args, output_width(context));
  if (!args.out.empty() && !args.json) context.out << "The traces are in " << printable(args.out) << ".\n";
  return kExitOk;
}

}  // namespace yoke::cli
