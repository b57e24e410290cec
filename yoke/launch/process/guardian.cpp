#include "yoke/launch/process/guardian.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/process.h"
#include "yoke/launch/process/descendants.h"
#include "yoke/launch/process/error_folder.h"
#include "yoke/launch/process/exit_order.h"
#include "yoke/launch/process/master_port.h"
#include "yoke/launch/process/preload.h"
#include "yoke/launch/process/protocol.h"
#include "yoke/launch/process/rank_process.h"
#include "yoke/launch/process/session_starter.h"
#include "yoke/launch/process/step_daemon.h"
#include "yoke/launch/process/store_users.h"
#include "yoke/launch/store/store_server.h"

namespace yoke::launch {
namespace {

/// The kernel may take seconds to free a process that has much GPU memory or pinned memory.
constexpr std::chrono::seconds kGuardianPatience{10};

/// How long a program may take to load. Enough for libtorch on a slow file system.
constexpr std::chrono::seconds kLoadPatience{60};

/// How long processes that clean up after a rank (Python's resource_tracker, torch_shm_manager) may take to end by
/// themselves. Killing them at once would leave shared memory behind.
constexpr std::chrono::milliseconds kCourtesy{300};

/// The descriptors that are received for one rank.
struct Streams {
  UniqueFd in, out, err;
};

/// The process group of a rank. It is either the rank's own, whose id is the rank's pid, or the launcher's, which also
/// has other members.
struct RankGroup {
  pid_t rank = 0;
  pid_t id = 0;
};

class Guardian {
 public:
  explicit Guardian(GuardianOptions options) : options_(std::move(options)) {}

  void run() {
    detach();
    std::vector<UniqueFd> descriptors;
    while (const auto message = receive_message(options_.control.value(), &descriptors)) {
      if (message->kind == Message::Kind::kStart) run_ranks(*message, std::move(descriptors));
      descriptors.clear();
      if (!is_launcher_there_) break;  // other messages than kStart are for ranks that have ended
    }
    preload_.reset();
    starter_.reset();
    end_descendants({}, kGuardianPatience);
    std::error_code ignored;
    if (!options_.folder.empty()) std::filesystem::remove_all(options_.folder, ignored);
  }

 private:
  void tell(const Message& message) const { send_message(options_.control.value(), message); }

  void detach() {
    if (!options_.has_terminal) leave_session();  // with a terminal, only after the fork of the session starter
    prctl(PR_SET_NAME, "yoke-guardian");
    prctl(PR_SET_PDEATHSIG, SIGCONT);  // if the launcher ends, a stopped guardian is continued and ends the ranks
    become_subreaper();
    // All signals are blocked, because only the launcher controls the guardian. If a scheduler signals every process of
    // a job, the guardian must live until the grace period of the ranks is over.
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    signal(SIGCHLD, SIG_DFL);  // if it were ignored, the kernel would reap the ranks itself
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    auto keep = options_.keep_open;
    keep.push_back(options_.control.value());
    close_all_except(std::move(keep));
    child_signals_ = UniqueFd(signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
    null_ = UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int stream : {0, 1, 2}) dup2(null_.value(), stream);
    if (options_.has_terminal) starter_.emplace(options_.file_limit, options_.keep_open);  // does not inherit the lock
    if (options_.folder.empty()) return;
    folder_lock_ = make_error_folder(options_.folder);
    remove_abandoned_error_folders(std::filesystem::path(options_.folder).parent_path());
  }

  /// Moves to a new session, which gets neither the terminal's signals nor those to the launcher's job.
  void leave_session() const {
    if (getsid(0) != getpid()) setsid();
  }

  /// Starts ranks, and returns after they and all their descendants have ended.
  void run_ranks(const Message& start_message, std::vector<UniqueFd> descriptors) {
    is_stopping_ = must_kill_ = has_told_ = false;
    exits_ = {};
    courtesy_until_.reset();
    groups_.clear();
    undecided_.clear();
    start(start_message, std::move(descriptors));
    while (is_launcher_there_ && !is_over()) {
      pollfd polls[] = {{options_.control.value(), POLLIN, 0},
                        {child_signals_.value(), POLLIN, 0},
                        {failures_.value(), POLLIN, 0},
                        {store_reports_.value(), POLLIN, 0}};
      // The end of a grandchild causes no signal, so the guardian polls for the last members of a group that is to end.
      poll(polls, std::size(polls), ranks_.empty() ? 50 : -1);
      if (polls[0].revents != 0) obey();
      if (polls[2].revents != 0) tell_failures();  // the failures are reported before the exit that they cause
      if (polls[3].revents != 0) tell_of_store();  // and so is why the store has closed a connection
      reap();
      if (!has_ranks() && store_ > 0 && !std::exchange(has_told_, true)) tell({.kind = Message::Kind::kOnlyStore});
    }
    store_end_.reset();
    store_reports_.reset();
    if (!must_kill_ && is_courtesy_over()) tell_leftovers();
    for (const auto& process : end_descendants(to_keep(), kGuardianPatience)) {
      tell({.kind = Message::Kind::kLeftBehind, .pid = process.pid});
    }
    ranks_.clear();
    store_ = -1;
    tell({.kind = Message::Kind::kDone});
  }

  /// Returns the processes that fork ranks. They are kept, because ranks may start again after a failure.
  std::vector<pid_t> to_keep() const {
    std::vector<pid_t> result;
    if (preload_ && preload_->pid() > 0) result.push_back(preload_->pid());
    if (starter_) result.push_back(starter_->pid());
    return result;
  }

  void start(const Message& message_of_start, std::vector<UniqueFd> descriptors) {
    std::vector<Streams> streams(static_cast<size_t>(message_of_start.value));
    for (auto& one : streams) {
      std::vector<UniqueFd> received;
      const auto message = receive_message(options_.control.value(), &received);
      if (!message) {
        is_launcher_there_ = false;
        return;
      }
      const auto num_streams = static_cast<size_t>(std::popcount(static_cast<uint32_t>(message->value)));
      if (message->kind != Message::Kind::kRank || received.size() != num_streams)
        return;  // the launcher has given up this start
      one = to_streams(message->value, received);
    }
    auto plans = decode_plans(text_of(descriptors.front()));
    const int master = descriptors.size() > 1 ? descriptors[1].value() : -1;
    if (message_of_start.rank == 1 && !preload_) preload(plans);
    leave_session();
    if (is_stopping_ || must_kill_ || !is_launcher_there_) return;  // may have changed while the program was loaded
    for (size_t i = 0; i < plans.size(); ++i) {
      if (plans[i].is_store && !start_store(master, static_cast<int32_t>(i), plans[i].store_limit_bytes)) return;
    }
    if (master >= 0) share_master_port(master);
    auto failures = make_pipe();
    for (size_t i = 0; i < plans.size(); ++i) {
      if (plans[i].is_store) continue;
      const int own_master = plans[i].holds_master_port ? master : -1;
      if (!start_and_tell(plans[i], std::move(streams[i]), own_master, failures, static_cast<int32_t>(i))) break;
    }
    watch(std::move(failures));
  }

  static Streams to_streams(int32_t bits, std::span<UniqueFd> received) {
    Streams streams;
    auto next = received.begin();
    if ((bits & kStandardInput) != 0) streams.in = std::move(*next++);
    if ((bits & kStandardOutput) != 0) streams.out = std::move(*next++);
    if ((bits & kStandardError) != 0) streams.err = std::move(*next++);
    return streams;
  }

  /// Returns false if the rank cannot be started. Closes the streams: their reader must see the end of file when the
  /// rank ends.
  bool start_and_tell(RankPlan& plan, Streams streams, int master, const Pipe& failures, int32_t index) {
    const auto fd_or_null = [&](const UniqueFd& fd) { return fd ? fd.value() : null_.value(); };
    const pid_t pid = start_one(plan, {.in_fd = fd_or_null(streams.in),
                                       .out_fd = fd_or_null(streams.out),
                                       .err_fd = fd_or_null(streams.err),
                                       .master_fd = master,
                                       .failures = failures.write_end.value(),
                                       .index = index,
                                       .file_limit = options_.file_limit});
    if (pid < 0) {
      tell({.kind = Message::Kind::kCannotStart, .rank = index, .value = errno});
      return false;
    }
    last_start_ = Clock::now();
    groups_.push_back({pid, plan.process_group != 0 ? plan.process_group : pid});
    ranks_.emplace(pid, index);
    exits_.add(pid);
    tell({.kind = Message::Kind::kStarted, .rank = index, .pid = pid});
    return true;
  }

  void watch(Pipe failures) {
    fcntl(failures.read_end.value(), F_SETFL, O_NONBLOCK);
    failures_ = std::move(failures.read_end);
  }

  /// Starts a rank again whose process `pid` has ended, once what that process has left in its group is killed.
  void replace(const Message& message, std::vector<UniqueFd> descriptors) {
    const auto num_streams = static_cast<size_t>(std::popcount(static_cast<uint32_t>(message.value)));
    undecided_.erase(message.pid);
    if (is_stopping_ || must_kill_) return;
    if (descriptors.size() != 1 + num_streams) {  // the limit of open files is reached
      return tell({.kind = Message::Kind::kCannotStart, .rank = message.rank, .value = EMFILE});
    }
    auto plans = decode_plans(text_of(descriptors.front()));
    const auto old = std::ranges::find(groups_, message.pid, &RankGroup::rank);
    if (old != groups_.end()) {
      const auto left = groups_of_leftovers();
      if (old->id == old->rank && std::ranges::find(left, old->id) != left.end()) kill(-old->id, SIGKILL);
      groups_.erase(old);
    }
    if (failures_) tell_failures();
    auto failures = make_pipe();
    start_and_tell(plans.at(0), to_streams(message.value, std::span(descriptors).subspan(1)), -1, failures,
                   message.rank);
    watch(std::move(failures));
  }

  /// Starts the process that serves the ranks' store, which has no part in signals for the ranks. It listens before the
  /// first rank starts, so that no rank's first try to connect fails. Returns false if it cannot be started.
  bool start_store(int master, int32_t index, int64_t limit_bytes) {
    auto end = make_pipe(), reports = make_pipe();
    const pid_t guardian = getpid();
    pid_t pid = listen(master, SOMAXCONN) == 0 ? fork() : -1;
    if (pid < 0) {
      tell({.kind = Message::Kind::kCannotStart, .rank = index, .value = errno});
      return false;
    }
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      prctl(PR_SET_NAME, "yoke-store");
      setsid();
      close_all_except({master, end.read_end.value(), reports.write_end.value()});
      rlimit limit{};
      getrlimit(RLIMIT_NOFILE, &limit);
      limit.rlim_cur = limit.rlim_max;  // a connection or two for each rank of all nodes
      setrlimit(RLIMIT_NOFILE, &limit);
      serve_store(UniqueFd(master), std::move(end.read_end),
                  {.may_use = [users = StoreUsers(guardian)](uid_t uid) mutable { return users.may_use(uid); },
                   .limit_bytes = limit_bytes,
                   .reports = std::move(reports.write_end)});
    }
    store_ = pid;
    store_index_ = index;
    store_end_ = std::move(end.write_end);
    store_reports_ = std::move(reports.read_end);
    fcntl(store_reports_.value(), F_SETFL, O_NONBLOCK);
    return true;
  }

  void tell_of_store() {
    StoreReport report;
    ssize_t count = 0;
    while ((count = read(store_reports_.value(), &report, sizeof report)) == sizeof report) {
      const bool is_full = report.kind == StoreReport::Kind::kFull;
      tell({.kind = is_full ? Message::Kind::kStoreFull : Message::Kind::kStoreRefused,
            .value = is_full ? 0 : static_cast<int32_t>(report.value)});
    }
    if (count == 0) store_reports_.reset();  // the store has ended
  }

  /// Waits until the program can fork ranks. Obeys the launcher meanwhile.
  void preload(std::vector<RankPlan> plans) {
    std::erase_if(plans, [](const RankPlan& plan) { return plan.is_store; });
    preload_.emplace(plans, options_.python);
    leave_session();
    const auto until = std::chrono::steady_clock::now() + kLoadPatience;
    while (preload_->is_loading() && is_launcher_there_ && !must_kill_ && !is_stopping_) {
      preload_->wait(options_.control.value(), kLoadPatience);
      pollfd control{options_.control.value(), POLLIN, 0};
      if (poll(&control, 1, 0) > 0) obey();
      if (std::chrono::steady_clock::now() >= until) break;
    }
    if (!preload_->is_ready() && !is_stopping_ && !must_kill_) tell_not_preloaded();
  }

  void tell_not_preloaded() {
    const auto text = to_descriptor(preload_->is_loading() ? "the program takes too long to load" : preload_->reason());
    send_message(options_.control.value(), {.kind = Message::Kind::kNotPreloaded}, {text.value()});
  }

  /// Starts a rank. If it could not be started in the process group of `plan`, sets this member to 0.
  pid_t start_one(RankPlan& plan, const StartOptions& options) {
    if (preload_ && preload_->is_ready()) {
      if (const auto pid = preload_->start_rank(plan, options)) return *pid;
      tell_not_preloaded();
    }
    if (plan.process_group != 0) {
      if (const auto pid = starter_ ? starter_->start_rank(plan, options) : std::nullopt) return *pid;
      starter_.reset();  // the starter was killed, so the rank starts without the terminal
      plan.process_group = 0;
    }
    return start_rank(plan, options);
  }

  void obey() {
    std::vector<UniqueFd> descriptors;
    const auto message = receive_message(options_.control.value(), &descriptors);
    if (!message) {
      is_launcher_there_ = false;
      return;
    }
    if (message->kind == Message::Kind::kReplace) return replace(*message, std::move(descriptors));
    if (message->kind == Message::Kind::kKill) {
      must_kill_ = true;
      return;
    }
    if (message->kind == Message::Kind::kEndStore) {
      if (store_ > 0) kill(store_, SIGKILL);  // the store has no data to save
      return;
    }
    if (message->kind == Message::Kind::kSignal) {
      is_stopping_ = true;
      undecided_.clear();
    }
    const auto since_start = std::chrono::floor<std::chrono::milliseconds>(Clock::now() - last_start_);
    if (message->sender == 0 || !have_ranks(message->sender, take_pending(message->value), since_start)) {
      signal_groups(message->value, message->pid);
    }
    // A stopped rank (Ctrl-Z, a debugger, kill -STOP) handles the signal only after it was continued.
    if (message->kind == Message::Kind::kSignal) signal_groups(SIGCONT, 0);
  }

  void signal_groups(int signal, pid_t told) const {
    // Signals only groups with a member (an unreaped rank, or a child that it left), because the id of an empty group
    // may be reused.
    const auto left = groups_.size() == ranks_.size() ? std::vector<pid_t>() : groups_of_leftovers();
    for (const auto& group : groups_) {
      if (group.id == told) continue;
      const bool has_rank = ranks_.contains(group.rank);
      if (!has_rank && std::ranges::find(left, group.id) == left.end()) continue;
      // Between its fork and its setsid or setpgid a rank is not in its group yet. It then blocks the signal, which
      // stays pending until exec.
      if (has_rank && getpgid(group.rank) != group.id) kill(group.rank, signal);
      if (group.id == group.rank) {
        kill(-group.id, signal);
      } else {
        signal_descendants(group.id, signal);
      }
    }
  }

  /// Returns the groups whose rank has ended but which still have a member.
  std::vector<pid_t> groups_of_leftovers() const {
    std::vector<pid_t> result;
    for (const auto& process : descendants()) {
      const auto is_its = [&](const RankGroup& group) { return group.id == process.group; };
      if (!process.is_zombie && std::ranges::any_of(groups_, is_its)) result.push_back(process.group);
    }
    return result;
  }

  void tell_failures() {
    ExecFailure failure;
    ssize_t count = 0;
    while ((count = read(failures_.value(), &failure, sizeof failure)) == sizeof failure) {
      tell({.kind = Message::Kind::kCannotRun, .rank = failure.index, .value = failure.error_number});
    }
    if (count == 0) failures_.reset();  // every exec has succeeded or failed
  }

  void reap() {
    signalfd_siginfo ignored;
    while (read(child_signals_.value(), &ignored, sizeof ignored) > 0) {
    }
    int status = 0;
    // waitpid(-1) returns children in the order in which they were started; the launcher needs that of their ends.
    for (const auto pid : exits_.take()) {
      if (waitpid(pid, &status, WNOHANG) == pid) tell_exit(pid, status);
    }
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) tell_exit(pid, status);
  }

  void tell_exit(pid_t pid, int status) {
    if (failures_) tell_failures();
    if (pid == store_) {
      store_ = -1;
      if (has_ranks()) tell({.kind = Message::Kind::kExited, .rank = store_index_, .pid = pid, .value = status});
      return;
    }
    const auto rank = ranks_.find(pid);
    if (rank == ranks_.end()) return;  // an orphan
    tell({.kind = Message::Kind::kExited, .rank = rank->second, .pid = pid, .value = status});
    ranks_.erase(rank);
    if (options_.replaces && WIFSIGNALED(status) && !is_stopping_) undecided_.insert(pid);
  }

  /// Whether a rank runs, or the launcher may start one again.
  bool has_ranks() const { return !ranks_.empty() || !undecided_.empty(); }

  bool is_over() {
    if (must_kill_) return true;
    if (has_ranks() || store_ > 0) return false;
    if (!has_children() || (!to_keep().empty() && !has_others())) return true;
    // A rank that is a shell ends at once at the signal, but the program that it started may still be saving its work.
    if (is_stopping_ && !groups_of_leftovers().empty()) return false;
    if (!courtesy_until_) courtesy_until_ = Clock::now() + kCourtesy;
    return is_courtesy_over();
  }

  /// Whether processes that the ranks left have not ended by themselves.
  bool is_courtesy_over() const { return courtesy_until_ && Clock::now() >= *courtesy_until_; }

  void tell_leftovers() const {
    constexpr size_t kMaxNamed = 8;
    const auto keep = to_keep();
    std::string text;
    size_t count = 0;
    for (const auto& process : descendants()) {
      if (process.is_zombie || is_cleaner(process.pid)) continue;
      if (std::ranges::find(keep, process.pid) != keep.end()) continue;
      if (++count <= kMaxNamed) {
        text += fmt::format("{}{} (pid {})", text.empty() ? "" : ", ", process_name(process.pid), process.pid);
      }
    }
    if (count == 0) return;
    if (count > kMaxNamed) text += fmt::format(" and {} more", count - kMaxNamed);
    send_message(options_.control.value(), {.kind = Message::Kind::kLeftovers}, {to_descriptor(text).value()});
  }

  /// Whether there are descendants besides the processes that start ranks.
  bool has_others() const {
    const auto keep = to_keep();
    for (const auto& process : descendants()) {
      if (std::ranges::find(keep, process.pid) == keep.end()) return true;
    }
    return false;
  }

  GuardianOptions options_;
  UniqueFd null_;
  UniqueFd folder_lock_;
  UniqueFd child_signals_;
  UniqueFd failures_;
  std::unordered_map<pid_t, int32_t> ranks_;  ///< Index by pid, for each rank that has not been reaped.
  /// Ranks that a signal has killed. The launcher answers each with kReplace, or all with kSignal or kKill.
  std::set<pid_t> undecided_;
  ExitOrder exits_;
  std::vector<RankGroup> groups_;
  std::optional<Preload> preload_;
  std::optional<SessionStarter> starter_;  ///< Starts a rank in the launcher's process group.
  UniqueFd store_end_;                     ///< Closing it ends the store.
  UniqueFd store_reports_;                 ///< The store's StoreReport can be read there.
  pid_t store_ = -1;
  int32_t store_index_ = -1;
  Clock::time_point last_start_;  ///< When the last rank was started.
  bool is_launcher_there_ = true;
  bool is_stopping_ = false;
  bool must_kill_ = false;
  bool has_told_ = false;  ///< kOnlyStore was sent.
  std::optional<Clock::time_point> courtesy_until_;
};

}  // namespace

void guard(GuardianOptions options) {
  try {
    Guardian(std::move(options)).run();
  } catch (...) {
    _exit(1);  // the death signal ends the ranks, and the launcher reads the end of file
  }
  _exit(0);  // not exit(), which would run the launcher's atexit handlers
}

}  // namespace yoke::launch
