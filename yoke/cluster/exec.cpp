#include "yoke/cluster/exec.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/signal_name.h"
#include "yoke/base/text.h"
#include "yoke/launch/node/wire.h"
#include "yoke/launch/output/screen.h"
#include "yoke/launch/process/descendants.h"
#include "yoke/launch/process/signals.h"

namespace yoke::cluster {
namespace {

using launch::LoopTime;
using nlohmann::json;
using std::chrono::milliseconds;

constexpr int64_t kMaxUnacknowledged = 1 << 20;
constexpr milliseconds kExecTurn{1000};
constexpr milliseconds kExecFarewell{1000};
constexpr milliseconds kEndOfDescendants{5000};
/// How long to wait for output of background processes after the command has ended.
constexpr milliseconds kLateOutput{200};

const std::vector<int> kPassedOn = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

/// The child of an agent, and its output.
class ExecChild : public launch::EventSource {
 public:
  ExecChild(launch::Channel& channel, const std::vector<std::string>& argv) : channel_(channel) {
    launch::become_subreaper();
    signals_ = launch::take_signals(kPassedOn);
    auto out = make_pipe(), err = make_pipe(), failure = make_pipe();
    const int failure_fd = failure.write_end.value();
    pid_ = spawn({.argv = argv,
                  .in = kNullStream,
                  .out = out.write_end.value(),
                  .err = err.write_end.value(),
                  .new_session = true,
                  .death_signal = SIGKILL,
                  .blocked_signals = BlockedSignals::kNone,
                  .exec_failed = [failure_fd](int error) {
                    [[maybe_unused]] const auto count = write(failure_fd, &error, sizeof error);
                  }});
    if (pid_ < 0) throw system_error(errno, "starting " + argv.at(0));
    process_ = open_process(pid_);
    failure.write_end.reset();
    int error = 0;
    if (read(failure.read_end.value(), &error, sizeof error) == sizeof error) {
      channel_.send({{"failed", fmt::format("{}: {}", printable(argv[0]), std::generic_category().message(error))}});
    }
    streams_[0].fd = std::move(out.read_end);
    streams_[1].fd = std::move(err.read_end);
    for (auto& stream : streams_) fcntl(stream.fd.value(), F_SETFL, O_NONBLOCK);
  }

  bool is_over() const { return status_ && ((!streams_[0].fd && !streams_[1].fd) || is_late_); }
  int status() const { return status_.value_or(128 + SIGKILL); }
  /// The last signal to this process, which somebody on the node has sent, or Slurm; 0 if there was none.
  int own_signal() const { return own_signal_; }
  void signal(int number) const {
    if (!status_) kill(-pid_, number);  // afterwards the number may be that of another group
  }
  void acknowledge(bool is_err, int64_t count) { streams_[is_err ? 1 : 0].unacknowledged -= count; }
  /// Nobody reads this stream any more, so writing to it fails for the command too, as in a pipe of a shell.
  void close_stream(bool is_err) { streams_[is_err ? 1 : 0] = {}; }
  void kill_all() const { launch::end_descendants({}, kEndOfDescendants); }

  void add_to(launch::WaitSet& waits) override {
    waits.read(status_ ? -1 : process_.value(), has_ended_);
    waits.read(signals_.value(), has_signal_);
    for (auto& stream : streams_)
      waits.read(stream.unacknowledged < kMaxUnacknowledged ? stream.fd.value() : -1, stream.is_ready);
    waits.until(late_at_);
  }

  void handle(LoopTime now) override {
    while (const auto one = launch::next_signal(signals_)) {
      own_signal_ = one->number;
      signal(one->number);
    }
    for (const bool is_err : {false, true}) {
      if (streams_[is_err ? 1 : 0].is_ready) read_some(is_err);
    }
    int wait_status = 0;
    if (!status_ && waitpid(pid_, &wait_status, WNOHANG) == pid_) {
      status_ = shell_status(wait_status);
      late_at_ = now + kLateOutput;
    }
    if (late_at_ && now >= *late_at_) {
      is_late_ = std::ranges::none_of(streams_, [](const Stream& stream) {
        return stream.fd && (stream.is_ready || stream.unacknowledged >= kMaxUnacknowledged);
      });
      late_at_ = now + kLateOutput;
    }
  }

 private:
  struct Stream {
    UniqueFd fd;
    bool is_ready = false;
    int64_t unacknowledged = 0;
  };

  void read_some(bool is_err) {
    auto& stream = streams_[is_err ? 1 : 0];
    char buffer[1 << 16];
    const auto count = read(stream.fd.value(), buffer, sizeof buffer);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
      stream.fd.reset();
      return;
    }
    stream.unacknowledged += count;
    channel_.send({{"output", std::string(buffer, static_cast<size_t>(count))}, {"err", is_err}});
  }

  launch::Channel& channel_;
  UniqueFd signals_, process_;
  pid_t pid_ = -1;
  Stream streams_[2];
  bool has_ended_ = false, has_signal_ = false, is_late_ = false;
  std::optional<int> status_;
  std::optional<LoopTime> late_at_;
  int own_signal_ = 0;
};

/// A node of the caller.
class ExecNode : public launch::EventSource {
 public:
  ExecNode(int64_t number, std::string name, launch::AgentProcess agent, const json& request, milliseconds silence,
           launch::Screen& screen)
      : number_(number),
        name_(std::move(name)),
        channel_(std::in_place, std::move(agent.out), std::move(agent.in), silence,
                 std::string(launch::kAgentPreamble)),
        screen_(screen),
        errors_(std::move(agent.err)),
        process_(agent.pid) {
    channel_->send({{"exec", request}});
  }

  ~ExecNode() override {
    if (process_ <= 0) return;
    for (auto left = kExecFarewell.count(); waitpid(process_, nullptr, WNOHANG) == 0; --left) {  // srun
      if (left <= 0 || !status_) kill(process_, SIGKILL);
      poll(nullptr, 0, 1);
    }
  }

  const std::optional<int>& status() const { return status_; }
  const std::string& trouble() const { return trouble_; }
  bool is_lost() const { return is_lost_; }
  const std::string& name() const { return name_; }
  void signal(int number) {
    if (channel_) channel_->send({{"signal", number}});
  }

  void add_to(launch::WaitSet& waits) override {
    if (status_) return;
    for (const bool is_err : {false, true}) {
      if (screen_.is_closed(is_err) && !std::exchange(is_closed_[is_err ? 1 : 0], true)) {
        channel_->send({{"close", true}, {"err", is_err}});
      }
      auto& count = unacknowledged_[is_err ? 1 : 0];
      if (count == 0 || !screen_.has_room(is_err)) continue;
      channel_->send({{"ack", count}, {"err", is_err}});
      count = 0;
    }
    channel_->add_to(waits);
  }

  void handle(LoopTime now) override {
    if (status_) return;
    channel_->handle(now);
    try {
      while (auto message = channel_->receive()) obey(*message);
    } catch (const std::exception& error) {  // catches exceptions of the JSON library too
      lose(error.what());
    }
    if (!status_ && channel_->end()) {
      const auto said = last_error();
      lose(said.empty() ? *channel_->end() : said);
    }
    if (status_) channel_.reset();  // the agent waits for this
  }

 private:
  void obey(const json& message) {
    if (const auto output = message.find("output"); output != message.end()) {
      const bool is_err = message.at("err");
      const auto& bytes = output->get_ref<const std::string&>();
      unacknowledged_[is_err ? 1 : 0] += static_cast<int64_t>(bytes.size());
      screen_.show(number_, is_err, bytes);
    } else if (const auto failed = message.find("failed"); failed != message.end()) {
      trouble_ = printable(failed->get<std::string>());
    } else if (const auto event = message.find("event"); event != message.end()) {
      const auto one = launch::to_event(*event);  // the agent refuses the request
      trouble_ = printable(one.text);
      finish(one.value);
    } else if (const auto exit = message.find("exit"); exit != message.end()) {
      if (const int signal = message.value("signal", 0); signal != 0 && exit->get<int>() != 0) {
        return lose(fmt::format("its agent received {}, as when Slurm ends the step", signal_name(signal)));
      }
      finish(exit->get<int>());
    }
  }

  void finish(int status) {
    status_ = status;
    for (const bool is_err : {false, true}) screen_.show(number_, is_err, std::nullopt);
  }

  void lose(const std::string& why) {
    trouble_ = "lost: " + printable(why);
    is_lost_ = true;
    finish(exit_status(ErrorCode::kUnavailable));
  }

  /// What srun said last. It can be asked once.
  std::string last_error() const {
    std::string text(4096, '\0');
    if (!errors_) return "";
    fcntl(errors_.value(), F_SETFL, O_NONBLOCK);
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, read(errors_.value(), text.data(), text.size()))));
    const auto lines = lines_of(text);
    return lines.empty() || std::string(lines.back()) + "\n" == launch::kAgentPreamble ? "" : std::string(lines.back());
  }

  const int64_t number_;
  const std::string name_;
  std::optional<launch::Channel> channel_;
  launch::Screen& screen_;
  UniqueFd errors_;
  pid_t process_ = -1;
  std::optional<int> status_;
  std::string trouble_;
  bool is_lost_ = false;
  int64_t unacknowledged_[2] = {0, 0};
  bool is_closed_[2] = {false, false};  ///< Whether the agent knows that nobody reads the stream.
};

class SignalSource : public launch::EventSource {
 public:
  SignalSource() : signals_(launch::take_signals(kPassedOn)) {}
  std::optional<launch::Signal> next() const { return launch::next_signal(signals_); }
  void add_to(launch::WaitSet& waits) override { waits.read(signals_.value(), has_signal_); }
  void handle(LoopTime) override {}

 private:
  UniqueFd signals_;
  bool has_signal_ = false;
};

}  // namespace

int serve_exec(launch::Channel& channel, const std::vector<std::string>& argv) {
  ExecChild child(channel, argv);
  launch::EventLoop loop;
  const std::vector<launch::EventSource*> sources = {&channel, &child};
  while (!child.is_over() && !channel.end()) {
    loop.turn(sources, kExecTurn);
    while (const auto message = channel.receive()) {
      if (const auto signal = message->find("signal"); signal != message->end()) child.signal(signal->get<int>());
      if (const auto ack = message->find("ack"); ack != message->end())
        child.acknowledge(message->at("err"), ack->get<int64_t>());
      if (message->contains("close")) child.close_stream(message->at("err"));
    }
  }
  child.kill_all();
  if (channel.end()) return exit_status(ErrorCode::kUnavailable);
  channel.send({{"exit", child.status()}, {"signal", child.own_signal()}});
  // The caller closes the connection when it has everything. If it were closed here while a message of the caller is
  // on its way, the kernel would reset it, and drop output that the caller has not received.
  const std::vector<launch::EventSource*> only_caller = {&channel};
  while (!channel.end()) {
    loop.turn(only_caller, kExecTurn);
    while (channel.receive()) {
    }
  }
  return 0;
}

int exec_on_nodes(const std::vector<launch::Host>& hosts, const json& request, const ExecOptions& options,
                  const Environment& environment) {
  SignalSource signals;
  launch::Screen screen(options.name, options.color, environment);
  std::vector<std::unique_ptr<ExecNode>> nodes;
  int highest = 0;
  bool is_node_lost = false;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    if (options.has_prefixes) {
      screen.add_rank(number, fmt::format("[{}] ", hosts[i].name));
    } else {
      screen.add_bytes_of(number);
    }
    try {
      nodes.push_back(
          std::make_unique<ExecNode>(number, hosts[i].name, hosts[i].start_agent(), request, options.silence, screen));
    } catch (const Error& error) {
      screen.say(fmt::format("{}: {}", options.name, error.what()));
      is_node_lost = true;
    }
  }
  launch::EventLoop loop;
  std::vector<launch::EventSource*> sources = {&signals};
  for (const auto& node : nodes) sources.push_back(node.get());
  sources.push_back(&screen);  // the last one, so that it knows after each turn whether lines of the nodes wait
  int num_signals = 0;
  const auto is_running = [](const auto& node) { return !node->status(); };
  while (num_signals < 2 && (std::ranges::any_of(nodes, is_running) || screen.is_waiting())) {
    loop.turn(sources, kExecTurn);
    while (const auto signal = signals.next()) {
      if (launch::is_job_control(signal->number)) {
        launch::stop_by(signal->number);
        continue;
      }
      if (std::ranges::find(kPassedOn, signal->number) != kPassedOn.end()) ++num_signals;
      for (const auto& node : nodes) node->signal(signal->number);
    }
  }
  for (const auto& node : nodes) {
    if (!node->trouble().empty()) screen.say(fmt::format("{}: {}: {}", options.name, node->name(), node->trouble()));
    highest = std::max(highest, node->status().value_or(128 + SIGINT));
    is_node_lost = is_node_lost || node->is_lost();
  }
  screen.flush();
  screen.settle();
  return screen.exit_code(is_node_lost ? exit_status(ErrorCode::kUnavailable) : highest);
}

}  // namespace yoke::cluster
