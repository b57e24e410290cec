#include "yoke/keep/detail/container_keeper.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <iterator>
#include <span>

#include "yoke/base/clock.h"
#include "yoke/base/command_output.h"
#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/base/line_connection.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/base/user_socket.h"
#include "yoke/container/meeting.h"
#include "yoke/keep/container_log.h"
#include "yoke/keep/detail/keeping.h"
#include "yoke/keep/fuse_helpers.h"
#include "yoke/keep/kept_containers.h"
#include "yoke/program/private_folder.h"
#include "yoke/program/watched_program.h"

namespace yoke::keep {
namespace {

constexpr int kLookMs = 100;                         ///< The longest pause while something is about to end.
constexpr std::chrono::seconds kContainerGrace{10};  ///< Between SIGTERM and SIGKILL.
/// For finding and for removing a container. If the engine hangs, its first program later finds no keeper, and ends.
constexpr std::chrono::seconds kRemovalTime{30};

/// The process that holds the claim.
class Keeper {
 public:
  Keeper(KeptContainer kept, UniqueFd& channel, UniqueFd output, const Environment& environment, const Tell& tell)
      : kept_(std::move(kept)),
        channel_(channel),
        environment_(environment),
        tell_(tell),
        folder_(meeting_parent(environment), "container"),
        meeting_(folder_.path()),
        listener_(listen_as_user(kKeeperService)),
        since_(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())) {
    kept_.request.meeting = folder_.path();
    grant_ = container::grant_devices(kept_.engine, kept_.devices);
    if (needs_log()) log_.emplace(std::move(output), environment_, kept_.request.log_bytes);
    if (!kept_.claim) return;
    end_.emplace(*kept_.claim);
    if (kept_.claim->is_shared()) {
      const auto& outer = kept_.claim->note();
      outer_ = open_process(outer.pid);
      if (start_ticks_of(static_cast<pid_t>(outer.pid)) != outer.start_ticks) outer_.reset();
      if (outer_) return;  // that process looks whether the devices are used
      succeed();
    }
    watch_.emplace(*kept_.claim, kept_.watch);
  }

  /// Lets the command start the engine's client. Returns false if the command is gone.
  bool begin() {
    const auto client = container::plan_container(kept_.engine, kept_.request, grant_);
    // Words and values may have any bytes, and be longer than a message.
    if (!send_message(channel_, {{"is_logged", needs_log()}}, to_descriptor(client.to_bytes()))) {
      throw system_error(errno, "starting the client of " + std::string(name(kept_.engine.kind)));
    }
    const auto answer = receive_message(channel_);
    if (!answer || !answer->contains("client")) return false;
    client_pid_ = answer->at("client").get<pid_t>();
    client_ = open_process(client_pid_);
    leave_terminal("yoke-container");  // the container must not lose its keeper with the terminal
    send_message(channel_, {{"go", true}});
    return true;
  }

  void keep() {
    program::SignalMessages messages;
    while (!is_over_) {
      pollfd news[] = {{meeting_.fd(), POLLIN, 0},
                       {client_.value(), POLLIN, 0},
                       {channel_.value(), POLLIN, 0},
                       {messages.fd(), POLLIN, 0},
                       {end_of_container(), POLLIN, 0},
                       {listener_.value(), POLLIN, 0},
                       {watch_ ? watch_->fd() : -1, POLLIN, 0},
                       {outer_.value(), POLLIN, 0},
                       {arrival_ && !has_begun_ ? arrival_->connection.value() : -1, POLLIN, 0},
                       {log_ ? log_->source() : -1, POLLIN, 0}};
      const int pause = milliseconds_left();
      if (poll(news, std::size(news), pause) == 0 && pause > kLookMs && kept_.claim) kept_.claim->beat();
      if (news[0].revents != 0) welcome();
      if (news[8].revents != 0) hear_container();
      if (news[9].revents != 0) log_->copy();
      if (news[4].revents != 0) break;
      if (news[1].revents != 0) client_.reset();
      if (news[2].revents != 0) hear_command();
      while (const auto message = messages.next()) {
        if (program::asks_to_end(message->signal)) stop();
      }
      if (news[5].revents != 0) answer();
      if (news[7].revents != 0) {
        outer_.reset();
        if (succeed()) watch_.emplace(*kept_.claim, kept_.watch);
      }
      look_at_time();
    }
    if (kept_.claim) kept_.claim->release();
    if (log_) log_->copy();
    constexpr int64_t kShown = 8192;
    send_message(channel_, {{"ended", true}, {"log", log_ ? log_->tail(kShown) : ""}});
    helpers_.end(client_ ? std::chrono::seconds(5) : std::chrono::milliseconds(0));
  }

 private:
  /// Apptainer keeps no output of a container in the background.
  bool needs_log() const {
    return kept_.request.foreground == container::Foreground::kDetached &&
           kept_.engine.kind == container::EngineKind::kApptainer;
  }

  /// A descriptor that becomes readable when the container's first program has ended. Its pidfd comes after the end of
  /// all other processes of the PID namespace, and its connection somewhat before.
  int end_of_container() const {
    if (!arrival_ || (!has_begun_ && !arrival_->process)) return -1;
    return arrival_->process ? arrival_->process.value() : arrival_->connection.value();
  }

  int milliseconds_left() const {
    const bool waits = kill_at_ || (!arrival_ && !client_);
    if (waits || !kept_.claim) return waits ? kLookMs : -1;
    return sooner(end_->milliseconds_left(), watch_ ? watch_->milliseconds_left() : -1);
  }

  void welcome() {
    auto arrival = meeting_.accept();
    if (!arrival) return;
    if (arrival_) return consent(*arrival, "another container has used this claim already");
    auto refusal = is_stopping_ ? std::optional<std::string>("it was ended before it began")
                                : contradiction(grant_.expectation, container::parse_sight(arrival->report));
    if (!refusal) {
      refusal = missed_limit(kept_.engine, kept_.request, read_cgroup_limits("/", std::to_string(arrival->pid)));
    }
    arrival_ = std::move(arrival);
    if (kept_.engine.kind == container::EngineKind::kApptainer) helpers_ = FuseHelpers(arrival_->pid);
    if (kept_.claim && !kept_.claim->is_shared()) kept_.claim->set_program(arrival_->pid);
    consent(*arrival_, refusal);
    if (refusal) send_message(channel_, {{"refused", *refusal}});
  }

  /// Tells the command whether the program could be executed.
  void hear_container() {
    has_begun_ = true;
    const auto beginning = hear_beginning(*arrival_);
    if (beginning && beginning->status == 0) send_message(channel_, {{"running", true}});
    if (beginning && beginning->status != 0)
      send_message(channel_, {{"failed", beginning->status}, {"why", beginning->why}});
  }

  /// Takes over a claim from the process that has taken it and has ended.
  bool succeed() {
    const bool is_ours = kept_.claim->succeed(arrival_ ? arrival_->pid : getpid());
    if (!is_ours) stop();
    return is_ours;
  }

  void hear_command() {
    const auto message = receive_message(channel_);
    if (!message) {
      channel_.reset();
      if (kept_.ends_with_command) stop();
      return;
    }
    if (message->contains("signal")) pass_on(message->at("signal").get<int>());
    if (message->contains("client_status")) client_status_ = message->at("client_status").get<int>();
  }

  /// Before the container's first program has come, a client that got a signal could leave half a container behind. It
  /// goes on instead, and that program is refused.
  void pass_on(int number) {
    if (arrival_) {
      send_signal(*arrival_, number);
    } else if (program::asks_to_end(number)) {
      stop();
    }
  }

  void stop() {
    if (is_stopping_) return;
    is_stopping_ = true;
    kill_at_ = Clock::now() + kContainerGrace;
    if (arrival_) send_signal(*arrival_, SIGTERM);
    // Apptainer leaves nothing behind, and may take long to make an image.
    if (!arrival_ && kept_.engine.kind == container::EngineKind::kApptainer) signal_client(SIGTERM);
  }

  void signal_client(int number) const {
    if (client_) syscall(SYS_pidfd_send_signal, client_.value(), number, nullptr, 0U);
  }

  void look_at_time() {
    if (end_ && end_->is_over()) stop();
    if (arrival_ && watch_ && !is_stopping_) look_at_use();
    if (kill_at_ && Clock::now() >= *kill_at_) {
      if (arrival_) send_signal(*arrival_, SIGKILL);
      if (!arrival_) signal_client(SIGKILL);
      kill_at_ = Clock::now() + kContainerGrace;
      if (arrival_) remove_container();
    }
    if (arrival_ || client_) return;
    // The client has ended, and no program of the container has come.
    const bool may_come =
        kept_.request.foreground == container::Foreground::kDetached && client_status_ == 0 && !is_stopping_;
    if (!client_ended_at_) client_ended_at_ = Clock::now();
    const auto patience = may_come ? std::chrono::milliseconds(kDetachedStart) : std::chrono::milliseconds(500);
    if (Clock::now() - *client_ended_at_ < patience) return;
    remove_container();
    is_over_ = true;
  }

  /// The site may end claims whose devices are idle.
  void look_at_use() {
    const auto step = watch_->look();
    if (step == claim::IdleStep::kNone) return;
    const bool is_end = step == claim::IdleStep::kEnd;
    tell_(Told::kElsewhere, is_end ? watch_->farewell() : watch_->warning());
    if (is_end) stop();
  }

  /// A container may exist although its client has ended. Its program waits for consent, so it uses no device.
  void remove_container() const {
    const auto listing = container::plan_listing(kept_.engine, folder_.path());
    if (listing.empty()) return;
    const auto found = run_quietly(listing, environment_, kRemovalTime);
    for (const auto id : words_of(found.out)) {
      if (id.find_first_not_of("0123456789abcdef") != std::string_view::npos) continue;
      run_quietly(container::plan_removal(kept_.engine, std::string(id)), environment_, kRemovalTime);
    }
  }

  void answer() {
    auto connection = accept_connection(listener_.value());
    const auto peer = connection ? peer_of(connection.value()) : std::nullopt;
    if (!peer || (peer->uid != 0 && peer->uid != geteuid())) return;
    LineConnection lines(std::move(connection));
    const auto line = lines.next(std::chrono::milliseconds(500));
    if (line == "stop") stop();
    if (line == "log") return show_log(std::move(lines));
    lines.send(json_line(describe()));
  }

  /// Sends the file of the log. The end of the connection says that the output has ended.
  void show_log(LineConnection reader) {
    std::erase_if(readers_, [](LineConnection& one) {
      one.next();
      return one.is_closed();
    });
    constexpr std::byte kWord{'l'};
    const int file = log_ ? log_->file() : -1;
    const bool is_sent = send_with_fds(reader.fd(), {&kWord, 1}, {&file, log_ ? size_t{1} : size_t{0}});
    constexpr size_t kMostReaders = 100;
    if (is_sent && readers_.size() < kMostReaders) readers_.push_back(std::move(reader));
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
  UniqueFd& channel_;
  const Environment& environment_;
  const Tell& tell_;
  program::PrivateFolder folder_;
  container::Meeting meeting_;
  UniqueFd listener_;
  int64_t since_;
  container::DeviceGrant grant_;
  std::optional<ContainerLog> log_;
  std::vector<LineConnection> readers_;  ///< Of the log.
  std::optional<ClaimEnd> end_;
  std::optional<UseWatch> watch_;
  pid_t client_pid_ = -1;
  UniqueFd outer_;   ///< A pidfd of the process that has taken a shared claim; empty once it has ended.
  UniqueFd client_;  ///< A pidfd; empty once the client has ended.
  std::optional<int> client_status_;
  std::optional<container::Arrival> arrival_;
  FuseHelpers helpers_;  ///< Of Apptainer.
  std::optional<Clock::time_point> kill_at_, client_ended_at_;
  bool is_stopping_ = false, is_over_ = false;
  bool has_begun_ = false;  ///< The container's first program has said whether the user's program runs.
};

}  // namespace

bool send_message(const UniqueFd& channel, const Json& message, const UniqueFd& file) {
  const auto text = json_line(message);
  const int fd = file.value();
  if (send_with_fds(channel.value(), std::as_bytes(std::span(text)), {&fd, file ? size_t{1} : size_t{0}})) return true;
  const int error = errno;
  shutdown(channel.value(), SHUT_RDWR);
  errno = error;
  return false;
}

std::optional<Json> receive_message(const UniqueFd& channel, UniqueFd* file) {
  std::string text(1 << 18, '\0');  // more than the kernel takes for a message
  std::vector<UniqueFd> files;
  const auto count = receive_with_fds(channel.value(), std::as_writable_bytes(std::span(text)), files);
  if (count <= 0) return std::nullopt;
  if (file != nullptr && !files.empty()) *file = std::move(files[0]);
  text.resize(static_cast<size_t>(count));
  auto json = Json::parse(text, nullptr, false);
  return json.is_object() ? std::optional(std::move(json)) : std::nullopt;
}

bool keep_container(KeptContainer kept, UniqueFd& channel, UniqueFd output, const Environment& environment,
                    const Tell& tell) {
  Keeper keeper(std::move(kept), channel, std::move(output), environment, tell);
  if (!keeper.begin()) return false;
  keeper.keep();
  return true;
}

}  // namespace yoke::keep
