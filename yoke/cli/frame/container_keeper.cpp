#include "yoke/cli/frame/container_keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/line_connection.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/base/user_socket.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/claim_keeper.h"
#include "yoke/cli/frame/private_folder.h"
#include "yoke/cli/frame/watched_program.h"
#include "yoke/container/command.h"
#include "yoke/container/meeting.h"

namespace yoke::cli {
namespace {

using Json = nlohmann::ordered_json;
using Steady = std::chrono::steady_clock;

constexpr int kLookMs = 100;                         ///< The longest pause while something is about to end.
constexpr std::chrono::seconds kContainerGrace{10};  ///< Between SIGTERM and SIGKILL.
/// How long a container may take from the end of the client that has started it in the background to its first program.
constexpr std::chrono::seconds kDetachedStart{30};

void tell(const UniqueFd& channel, const Json& message) {
  const auto text = message.dump(-1, ' ', false, Json::error_handler_t::replace);
  [[maybe_unused]] const auto count = send(channel.value(), text.data(), text.size(), MSG_NOSIGNAL);
}

/// Waits for a message. Returns nullopt if the other process is gone.
std::optional<Json> hear(const UniqueFd& channel) {
  std::string text(1 << 20, '\0');
  ssize_t count = 0;
  do {
    count = recv(channel.value(), text.data(), text.size(), 0);
  } while (count < 0 && errno == EINTR);
  if (count <= 0) return std::nullopt;
  text.resize(static_cast<size_t>(count));
  auto json = Json::parse(text, nullptr, false);
  return json.is_object() ? std::optional(std::move(json)) : std::nullopt;
}

/// The process that holds the claim.
class Keeper {
 public:
  Keeper(KeptContainer kept, UniqueFd channel, const Context& context)
      : kept_(std::move(kept)),
        channel_(std::move(channel)),
        environment_(context.environment),
        folder_(meeting_parent(context.environment), "container"),
        meeting_(folder_.path()),
        listener_(listen_as_user(kKeeperService)),
        since_(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())) {
    kept_.request.meeting = folder_.path();
    grant_ = container::grant_devices(kept_.engine, kept_.devices);
    if (!kept_.claim) return;
    end_.emplace(*kept_.claim);
    watch_.emplace(*kept_.ledger, *kept_.claim, kept_.watch);
  }

  /// Lets the command start the engine's client. Returns false if the command is gone.
  bool begin() {
    tell(channel_, {{"argv", container::plan_container(kept_.engine, kept_.request, grant_)}});
    const auto answer = hear(channel_);
    if (!answer || !answer->contains("client")) return false;
    client_pid_ = answer->at("client").get<pid_t>();
    client_ = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, client_pid_, 0U)));
    leave_terminal();
    tell(channel_, {{"go", true}});
    return true;
  }

  void keep() {
    SignalMessages messages;
    while (!is_over_) {
      pollfd news[] = {{meeting_.fd(), POLLIN, 0},
                       {client_.value(), POLLIN, 0},
                       {channel_.value(), POLLIN, 0},
                       {messages.fd(), POLLIN, 0},
                       {end_of_container(), POLLIN, 0},
                       {listener_.value(), POLLIN, 0},
                       {watch_ ? watch_->fd() : -1, POLLIN, 0}};
      const int pause = milliseconds_left();
      if (poll(news, std::size(news), pause) == 0 && pause > kLookMs && kept_.claim) kept_.claim->beat();
      if (news[0].revents != 0) welcome();
      if (news[4].revents != 0) break;
      if (news[1].revents != 0) client_.reset();
      if (news[2].revents != 0) hear_command();
      while (const auto message = messages.next()) {
        if (message->signal == SIGTERM || message->signal == SIGHUP || message->signal == SIGINT) stop();
      }
      if (news[5].revents != 0) answer();
      look_at_time();
    }
    if (kept_.claim) kept_.claim->release();
    tell(channel_, {{"ended", true}});
  }

 private:
  /// The container must not lose its keeper with the terminal.
  static void leave_terminal() {
    const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null.value(), stream);
    [[maybe_unused]] const int changed = chdir("/");
    prctl(PR_SET_NAME, "yoke-container");
    prctl(PR_SET_PDEATHSIG, 0);
  }

  /// A descriptor that becomes readable when the container's first program has ended. Its pidfd comes after the end of
  /// all other processes of the PID namespace, and its connection somewhat before.
  int end_of_container() const {
    if (!arrival_) return -1;
    return arrival_->process ? arrival_->process.value() : arrival_->connection.value();
  }

  int milliseconds_left() const {
    const bool waits = kill_at_ || (!arrival_ && !client_);
    if (waits || !kept_.claim) return waits ? kLookMs : -1;
    const int look = watch_->milliseconds_left();
    return look < 0 ? end_->milliseconds_left() : std::min(look, end_->milliseconds_left());
  }

  void welcome() {
    auto arrival = meeting_.accept();
    if (!arrival) return;
    if (arrival_) return consent(*arrival, "another container has used this claim already");
    const auto refusal = is_stopping_ ? std::optional<std::string>("it was ended before it began")
                                      : contradiction(grant_.expectation, container::parse_sight(arrival->report));
    arrival_ = std::move(arrival);
    if (kept_.claim) {
      auto note = kept_.claim->note();
      note.program_pid = arrival_->pid;
      note.program_start_ticks = start_ticks_of(arrival_->pid).value_or(0);
      kept_.claim->write(note);
    }
    consent(*arrival_, refusal);
    tell(channel_, refusal ? Json{{"refused", *refusal}} : Json{{"running", true}});
  }

  void hear_command() {
    const auto message = hear(channel_);
    if (!message) return channel_.reset();
    if (message->contains("signal")) pass_on(message->at("signal").get<int>());
    if (message->contains("client_status")) client_status_ = message->at("client_status").get<int>();
  }

  void pass_on(int number) {
    if (arrival_) {
      send_signal(*arrival_, number);
    } else if (client_) {
      syscall(SYS_pidfd_send_signal, client_.value(), number, nullptr, 0U);
    }
  }

  void stop() {
    if (is_stopping_) return;
    is_stopping_ = true;
    pass_on(SIGTERM);
    kill_at_ = Steady::now() + kContainerGrace;
  }

  void look_at_time() {
    if (end_ && end_->is_over()) stop();
    if (arrival_ && watch_ && !is_stopping_) look_at_use();
    if (kill_at_ && Steady::now() >= *kill_at_) {
      pass_on(SIGKILL);
      kill_at_ = Steady::now() + kContainerGrace;
      if (arrival_) remove_container();
    }
    if (arrival_ || client_) return;
    // The client has ended, and no program of the container has come.
    const bool may_come =
        kept_.request.foreground == container::Foreground::kDetached && client_status_ == 0 && !is_stopping_;
    if (!client_ended_at_) client_ended_at_ = Steady::now();
    const auto patience = may_come ? std::chrono::milliseconds(kDetachedStart) : std::chrono::milliseconds(500);
    if (Steady::now() - *client_ended_at_ < patience) return;
    remove_container();
    is_over_ = true;
  }

  /// The site may end claims whose devices are idle.
  void look_at_use() {
    const auto step = watch_->look();
    if (step == claim::IdleStep::kNone) return;
    const bool is_end = step == claim::IdleStep::kEnd;
    tell_terminals("yoke container run: " + (is_end ? watch_->farewell() : watch_->warning()), -1);
    if (is_end) stop();
  }

  /// A container may exist although its client was killed. Its program waits for consent, so it uses no device.
  void remove_container() const {
    std::error_code ignored;
    const auto file = folder_.path() / container::kIdName;
    if (!std::filesystem::exists(file, ignored)) return;
    const auto id = read_regular_file(file, 256);
    const auto words = words_of(id);
    if (words.size() != 1 || words[0].find_first_not_of("0123456789abcdef") != std::string_view::npos) return;
    const auto argv = container::plan_removal(kept_.engine, std::string(words[0]));
    if (!argv.empty()) container::run_quietly(argv, environment_);
  }

  void answer() {
    auto connection = accept_connection(listener_.value());
    const auto peer = connection ? peer_of(connection.value()) : std::nullopt;
    if (!peer || (peer->uid != 0 && peer->uid != geteuid())) return;
    LineConnection lines(std::move(connection));
    const auto line = lines.next(std::chrono::milliseconds(500));
    if (line == "stop") stop();
    lines.send(describe().dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  Json describe() const {
    std::vector<std::string> ids;
    for (const auto& device : kept_.devices) ids.push_back(device.id);
    Json until;
    if (kept_.claim) {
      if (const auto note = kept_.claim->read(); note.until) until = std::chrono::system_clock::to_time_t(*note.until);
    }
    return {{"name", kept_.request.name},
            {"engine", name(kept_.engine.kind)},
            {"image", kept_.request.image},
            {"user", kept_.request.user.name},
            {"state", is_stopping_ ? "stopping"
                      : arrival_   ? "running"
                                   : "starting"},
            {"pid", arrival_ ? Json(arrival_->pid) : Json()},
            {"keeper", getpid()},
            {"devices", ids},
            {"since", since_},
            {"until", until},
            {"program", kept_.request.program}};
  }

  KeptContainer kept_;
  UniqueFd channel_;
  Environment environment_;
  PrivateFolder folder_;
  container::Meeting meeting_;
  UniqueFd listener_;
  int64_t since_;
  container::DeviceGrant grant_;
  std::optional<ClaimEnd> end_;
  std::optional<UseWatch> watch_;
  pid_t client_pid_ = -1;
  UniqueFd client_;  ///< A pidfd; empty once the client has ended.
  std::optional<int> client_status_;
  std::optional<container::Arrival> arrival_;
  std::optional<Steady::time_point> kill_at_, client_ended_at_;
  bool is_stopping_ = false, is_over_ = false;
};

/// Runs in the keeper's process. Returns its exit status.
int keep(Context& context, const std::function<std::optional<KeptContainer>(int&)>& prepare, UniqueFd channel) {
  int status = kExitOk;
  auto kept = prepare(status);
  if (!kept) return status;
  Keeper keeper(std::move(*kept), std::move(channel), context);
  if (!keeper.begin()) return 1;
  keeper.keep();
  return kExitOk;
}

int status_of_keeper(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// The command's part: runs the engine's client in the terminal.
class Front {
 public:
  Front(UniqueFd channel, pid_t keeper, bool is_detached, const Context& context)
      : channel_(std::move(channel)), keeper_(keeper), is_detached_(is_detached), context_(context) {}

  int run() {
    const auto plan = hear(channel_);
    if (!plan) return status_of_keeper(keeper_);
    SignalMessages messages;
    const auto argv = plan->at("argv").get<std::vector<std::string>>();
    const UniqueFd null(is_detached_ ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1);
    WatchedProgram client(argv, {.environment = context_.environment.to_strings(),
                                 .out = is_detached_ ? null.value() : kInheritedStream});
    tell(channel_, {{"client", client.pid()}});
    if (!hear(channel_)) throw Error(ErrorCode::kUnavailable, "the process that holds the devices has ended");
    if (const int error = client.start()) throw system_error(error, "starting " + argv[0]);
    while (!is_done(client)) {
      pollfd news[] = {{messages.fd(), POLLIN, 0}, {channel_.value(), POLLIN, 0}};
      poll(news, 2, milliseconds_left());
      if (news[1].revents != 0) listen();
      client.reap();
      while (const auto message = messages.next()) pass_on(*message);
      if (client.status() && !told_status_) {
        tell(channel_, {{"client_status", *client.status()}});
        told_status_ = true;
        give_up_at_ = Steady::now() + (is_detached_ && *client.status() == 0 ? kDetachedStart + std::chrono::seconds(5)
                                                                             : std::chrono::seconds(5));
      }
    }
    return finish(*client.status());
  }

 private:
  int milliseconds_left() const { return give_up_at_ ? 50 : -1; }

  bool is_done(const WatchedProgram& client) const {
    if (!client.status()) return false;
    if (is_detached_ && is_running_) return true;
    return is_ended_ || !channel_ || (give_up_at_ && Steady::now() >= *give_up_at_);
  }

  void listen() {
    const auto message = hear(channel_);
    if (!message) return channel_.reset();
    if (message->contains("running")) is_running_ = true;
    if (message->contains("refused")) refusal_ = message->at("refused").get<std::string>();
    if (message->contains("ended")) is_ended_ = true;
  }

  void pass_on(const SignalMessages::Message& message) {
    // The terminal signals the client, too, except that a hangup reaches the leader of the session alone.
    const bool is_for_us = message.is_from_process || (message.signal == SIGHUP && getsid(0) == getpid());
    if (is_for_us && message.signal != SIGCHLD) tell(channel_, {{"signal", message.signal}});
  }

  int finish(int status) {
    if (is_detached_ && refusal_) throw Error(ErrorCode::kFailedPrecondition, "{}", printable(*refusal_));
    if (is_detached_) return is_running_ ? kExitOk : status != 0 ? status : exit_status(ErrorCode::kUnavailable);
    if (!is_ended_ && channel_) {
      std::cerr << speaker(context_)
                << "the engine's client has ended, but the container has not: `yoke container ps` shows it, and it "
                   "keeps its devices until it ends\n"
                << std::flush;
    }
    return status;
  }

  UniqueFd channel_;
  pid_t keeper_;
  bool is_detached_;
  const Context& context_;
  bool is_running_ = false, is_ended_ = false, told_status_ = false;
  std::optional<std::string> refusal_;
  std::optional<Steady::time_point> give_up_at_;
};

}  // namespace

std::filesystem::path meeting_parent(const Environment& environment) {
  const auto path = environment.value_or("XDG_RUNTIME_DIR", "");
  struct stat info = {};
  const bool is_own = path.starts_with('/') && stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                      info.st_uid == geteuid() && (info.st_mode & 0077) == 0;
  return is_own ? path : "/tmp";
}

int run_container(Context& context, const std::function<std::optional<KeptContainer>(int&)>& prepare,
                  bool is_detached) {
  auto channel = make_socket_pair();
  context.out.flush();
  const pid_t parent = getpid();
  const pid_t keeper = fork();
  if (keeper < 0) throw system_error(errno, "starting the process that holds the devices");
  if (keeper == 0) {
    channel.near.reset();
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // until the client is about to start
    if (getppid() != parent) _exit(1);
    const int status = report_errors(context, [&] { return keep(context, prepare, std::move(channel.far)); });
    context.out.flush();
    _exit(status);
  }
  channel.far.reset();
  return Front(std::move(channel.near), keeper, is_detached, context).run();
}

}  // namespace yoke::cli
