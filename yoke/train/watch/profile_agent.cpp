#include "yoke/train/watch/detail/profile_agent.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/line_connection.h"
#include "yoke/base/user_socket.h"
#include "yoke/contract/profile_protocol.h"
#include "yoke/contract/rank_env.h"
#include "yoke/contract/variables.h"
#include "yoke/train/watch/detail/profile_window.h"

namespace yoke::train::detail {
namespace {

using std::chrono::milliseconds;

/// How long a step may wait for the request after this process has sent its hello. `yoke profile` answers at once.
/// Because ranks wait for the answer, they begin to record with the same step.
constexpr milliseconds kRequestPatience{50};
/// The same limit for the first step of a program that `yoke profile` has started.
constexpr milliseconds kFirstPatience{2000};
/// Minimum time between two checks for requests, so that steps of a few microseconds do not become slower.
constexpr milliseconds kQuestionInterval{5};

/// A request names a folder in which this process writes, so only requests from the same user are accepted.
bool is_same_user(int fd) {
  const auto peer = peer_of(fd);
  return peer && peer->uid == geteuid();
}

class ProfileAgent : public StepObserver {
 public:
  explicit ProfileAgent(const RankEnv& rank);

  /// Runs at process exit, when parts of Kineto may have been destroyed already.
  ~ProfileAgent() override;

  /// Connects to the `yoke profile -- CMD` that listens as `name`, if it runs as the same user.
  void connect_to_parent(const std::string& name) {
    const auto socket = parse_user_socket(kProfilingService, name);
    UniqueFd fd;
    if (!socket || socket->uid != geteuid() || connect_to(*socket, fd) != Connected::kYes) return;
    say_hello(std::move(fd), 0, kFirstPatience);
  }

  void on_step(int64_t step) override {
    const int64_t num_steps = step + 1;
    try {
      if (window_ && window_->is_over() && window_->discard()) window_.reset();
      if (client_) hear(milliseconds(0));
      answer_callers(num_steps);
      if (client_ && window_) advance(num_steps);
    } catch (const std::exception& error) {
      end_with({.failure = error.what()});
    }
  }

  void leave_to_parent() {
    listener_.reset();
    client_.reset();
    static_cast<void>(window_.release());
    is_forked_ = true;
  }

 private:
  void answer_callers(int64_t num_steps) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_question_) return;
    next_question_ = now + kQuestionInterval;
    if (std::exchange(is_forked_, false)) listener_ = listen_as_user(kProfiledService);
    if (!listener_) return;
    for (auto fd = accept_connection(listener_.value()); fd; fd = accept_connection(listener_.value())) {
      if (!is_same_user(fd.value())) continue;
      if (!client_) {
        say_hello(std::move(fd), num_steps, kRequestPatience);
        continue;
      }
      LineConnection(std::move(fd))
          .send(to_line({.failure = fmt::format("another `yoke profile` records process {} now; try again when it has "
                                                "ended",
                                                getpid())}));
    }
  }

  void say_hello(UniqueFd fd, int64_t num_steps, milliseconds patience) {
    client_.emplace(std::move(fd));
    client_->send(to_line(ProfileHello{.rank = rank_.rank,
                                       .world_size = rank_.world_size,
                                       .local_world_size = rank_.local_world_size,
                                       .pid = getpid(),
                                       .start_ticks = start_ticks_of(getpid()).value_or(0),
                                       .attempt = rank_.restart_count,
                                       .num_steps = num_steps}));
    hear(patience);
  }

  /// Reads the request, or notices that the client has disconnected.
  void hear(milliseconds patience) {
    const auto line = client_->next(patience);
    const auto request = line && !window_ ? parse_request(*line) : std::nullopt;
    if (request) {
      window_ = std::make_unique<ProfileWindow>(
          ProfileWindowOptions{.request = *request, .rank = rank_.rank, .world_size = rank_.world_size});
    } else if (line || client_->is_closed()) {
      drop_client();
    }
  }

  void advance(int64_t num_steps) {
    window_->begin_step(num_steps);
    client_->send(to_line(ProfileNews{.num_steps = num_steps}));
    if (window_->is_over()) end_with({.trace = window_->trace().native()});
  }

  void end_with(const ProfileNews& news) {
    if (client_) client_->send(to_line(news));
    drop_client();
  }

  /// If only another thread can stop the window, keeps the window until that thread ends a step.
  void drop_client() {
    client_.reset();
    if (window_ && window_->discard()) window_.reset();
  }

  const RankEnv rank_;
  UniqueFd listener_;
  std::optional<LineConnection> client_;
  std::unique_ptr<ProfileWindow> window_;  ///< Set while a request is carried out.
  bool is_forked_ = false;
  std::chrono::steady_clock::time_point next_question_;
};

/// Used in forked children: they inherit the descriptors, but only the parent answers.
ProfileAgent* agent_of_process = nullptr;

ProfileAgent::ProfileAgent(const RankEnv& rank) : rank_(rank), listener_(listen_as_user(kProfiledService)) {
  agent_of_process = this;
  pthread_atfork(nullptr, nullptr, [] {
    if (agent_of_process != nullptr) agent_of_process->leave_to_parent();
  });
}

ProfileAgent::~ProfileAgent() {
  agent_of_process = nullptr;
  static_cast<void>(window_.release());
}

}  // namespace

std::unique_ptr<StepObserver> make_profile_agent() {
  try {
    const auto environment = Environment::of_process();
    const auto wish = environment.value_or(variable::kProfile, "");
    if (wish == "off") return nullptr;
    auto agent = std::make_unique<ProfileAgent>(read_rank_env(environment));
    if (!wish.empty()) agent->connect_to_parent(wish);
    return agent;
  } catch (const Error&) {
    return nullptr;  // profiling is optional, so its errors do not end a training
  }
}

}  // namespace yoke::train::detail
