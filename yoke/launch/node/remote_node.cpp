#include "yoke/launch/node/remote_node.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "yoke/base/text.h"
#include "yoke/launch/node/before_agent.h"
#include "yoke/launch/node/wire.h"

namespace yoke::launch {
namespace {

using nlohmann::json;
using Kind = NodeEvent::Kind;
using Loss = NodeEvent::Loss;

/// How long ssh may take to end after the end of its input. If the network is cut, it does not end by itself.
constexpr std::chrono::milliseconds kProcessPatience{500};
/// The lines of ssh that are kept until the agent begins. Its warning of a changed host key has 15.
constexpr size_t kMostErrors = 100;

}  // namespace

RemoteNode::RemoteNode(std::unique_ptr<Channel> channel, std::string address, NodeObserver& observer)
    : channel_(std::move(channel)), address_(std::move(address)), observer_(observer), is_shown_here_(false) {}

RemoteNode::RemoteNode(AgentProcess process, const json& launch, std::chrono::milliseconds silence,
                       NodeObserver& observer)
    : channel_(std::make_unique<Channel>(std::move(process.out), std::move(process.in), silence,
                                         std::string(kAgentPreamble))),
      observer_(observer),
      process_errors_(std::move(process.err)),
      is_shown_here_(true),
      process_(process.pid) {
  fcntl(process_errors_.value(), F_SETFL, O_NONBLOCK);
  channel_->send({{"launch", launch}});
}

RemoteNode::~RemoteNode() {
  channel_.reset();
  if (process_ <= 0) return;
  const auto until = std::chrono::steady_clock::now() + (is_lost_ ? std::chrono::milliseconds(0) : kProcessPatience);
  while (waitpid(process_, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= until) kill(process_, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void RemoteNode::prepare(const std::string& address, std::optional<uint16_t> port, bool or_any) {
  channel_->send({{"prepare", {{"address", address}, {"port", port.value_or(0)}, {"or_any", or_any}}}});
}

void RemoteNode::start(const NodePlace& place) { channel_->send({{"start", to_json(place)}}); }

void RemoteNode::tell_ranks(Order order, int signal) {
  if (order == Order::kNone) return;
  channel_->send({{"order", static_cast<int>(order)}, {"signal", signal}});
}

void RemoteNode::replace(int64_t rank, const Replacement& replacement) {
  channel_->send({{"replace", rank}, {"pid", replacement.pid}, {"number", replacement.number}});
}

void RemoteNode::end(int exit_status, const std::string& reason) {
  channel_->send({{"end", {{"exit_code", exit_status}, {"reason", reason}}}});
}

RankStreams RemoteNode::streams(int64_t) const {
  StreamPlan stream;
  if (!is_shown_here_) stream.to = StreamPlan::To::kNowhere;
  return {stream, stream};
}

void RemoteNode::add_to(WaitSet& waits) {
  if (is_lost_) return;
  acknowledge();
  channel_->add_to(waits);
  waits.read(process_errors_.value(), has_process_errors_);
}

void RemoteNode::handle(LoopTime now) {
  if (is_lost_) return;
  if (has_process_errors_) read_process_errors();
  channel_->handle(now);
  receive();
}

void RemoteNode::receive() {
  try {
    while (const auto message = channel_->receive()) obey(*message);
  } catch (const std::exception& error) {  // catches exceptions of the JSON library too
    return lose(error.what());
  }
  if (!channel_->end()) return;
  read_process_errors();
  const auto how = channel_->given_up_after() ? Loss::kGivenUp : channel_->was_silent() ? Loss::kSilent : Loss::kClosed;
  if (is_ready_ || has_agent_) return lose(*channel_->end(), how);
  if (!error_text_.empty()) errors_.push_back(error_text_);
  lose(why_no_agent({.errors = std::move(errors_),
                     .out = channel_->text_before(),
                     .end = *channel_->end(),
                     .was_silent = channel_->was_silent()}));
}

void RemoteNode::obey(const json& message) {
  if (const auto event = message.find("event"); event != message.end()) {
    auto one = to_event(*event);
    if (one.info) {
      is_ready_ = true;
      if (one.info->address.empty()) one.info->address = address_;
    }
    return observer_.on_event(*this, one);
  }
  if (const auto output = message.find("output"); output != message.end()) {
    const bool is_err = message.at("err");
    const int64_t rank = message.at("rank");
    if (output->is_null()) return observer_.on_output(rank, is_err, std::nullopt);
    const auto& bytes = output->get_ref<const std::string&>();
    unacknowledged_[is_err ? 1 : 0] += static_cast<int64_t>(bytes.size());
    observer_.on_output(rank, is_err, bytes);
  }
}

/// Allows the agent to send more output when there is room for it.
void RemoteNode::acknowledge() {
  for (const bool is_err : {false, true}) {
    auto& count = unacknowledged_[is_err ? 1 : 0];
    if (count == 0 || !observer_.has_room(is_err)) continue;
    channel_->send({{"ack", count}, {"err", is_err}});
    count = 0;
  }
}

void RemoteNode::read_process_errors() {
  if (!process_errors_) return;
  char buffer[4096];
  ssize_t count = 0;
  while ((count = read(process_errors_.value(), buffer, sizeof buffer)) > 0) {
    error_text_.append(buffer, static_cast<size_t>(count));
    for (auto end = error_text_.find('\n'); end != error_text_.npos; end = error_text_.find('\n')) {
      auto line = error_text_.substr(0, end);
      error_text_.erase(0, end + 1);
      if (line.ends_with('\r')) line.pop_back();
      // A login shell may print lines before the agent begins. These lines are shown only if the agent never begins.
      if (line + "\n" == kAgentPreamble) {
        has_agent_ = true;
        continue;
      }
      if (has_agent_) {
        observer_.on_event(*this, {.kind = Kind::kNotice, .text = printable(line)});
      } else {
        if (errors_.size() == kMostErrors) errors_.erase(errors_.begin());
        errors_.push_back(std::move(line));
      }
    }
    if (error_text_.size() > sizeof buffer) error_text_.clear();
  }
  if (count == 0) process_errors_.reset();
}

void RemoteNode::lose(const std::string& why, Loss how) {
  if (is_lost_) return;
  is_lost_ = true;
  observer_.on_event(*this, {.kind = Kind::kLost, .value = static_cast<int>(how), .text = why});
}

}  // namespace yoke::launch
