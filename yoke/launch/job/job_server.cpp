#include "yoke/launch/job/job_server.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "yoke/base/json.h"
#include "yoke/base/json_text.h"
#include "yoke/base/user_socket.h"

namespace yoke::launch {
namespace {

constexpr size_t kMaxClients = 64;
constexpr size_t kMaxQuestionBytes = 4096;
constexpr size_t kMaxWaitingBytes = 1 << 16;
constexpr int kAcceptedPerTurn = 16;

bool may_ask(int fd) {
  const auto peer = peer_of(fd);
  return peer && (peer->uid == geteuid() || peer->uid == 0);
}

std::optional<int64_t> rank_of(const Json& question) {
  const auto rank = question.find("rank");
  return rank == question.end() ? std::nullopt : std::optional(rank->get<int64_t>());
}

}  // namespace

JobServer::JobServer(const Job& job, const RecentLines& lines, std::function<void(StopHow how)> stop)
    : job_(job), lines_(lines), stop_(std::move(stop)), listener_(listen_as_user(kJobService)) {}

void JobServer::close() {
  listener_.reset();
  clients_.clear();
}

void JobServer::add_to(WaitSet& waits) {
  waits.read(listener_.value(), is_called_);
  for (auto& client : clients_) {
    // Reads one question at a time: a client that does not take its answer cannot ask more.
    if (client.answer.empty()) {
      waits.read(client.fd.value(), client.is_ready);
    } else {
      waits.write(client.fd.value(), client.is_ready);
    }
  }
}

void JobServer::handle(LoopTime) {
  std::erase_if(clients_,
                [this](Client& client) { return !serve(client) || (is_finishing_ && client.answer.empty()); });
  if (is_called_) accept_some();
}

void JobServer::accept_some() {
  for (int i = 0; i < kAcceptedPerTurn; ++i) {
    auto fd = accept_connection(listener_.value());
    if (!fd) {
      // If descriptors or memory are exhausted, accept() would fail again at once, and the loop would spin. So the job
      // goes on without the server.
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) listener_.reset();
      return;
    }
    if (!may_ask(fd.value())) continue;
    if (clients_.size() == kMaxClients) {
      clients_.erase(std::ranges::min_element(clients_, {}, &Client::last_seen));
    }
    clients_.push_back({.fd = std::move(fd), .last_seen = ++num_acts_});
  }
}

/// Returns false if the client shall be disconnected.
bool JobServer::serve(Client& client) {
  const bool has_question = client.question.find('\n') != client.question.npos;
  if ((client.is_ready || has_question) && client.answer.empty() && !read_question(client)) return false;
  while (true) {
    add_lines(client);
    if (client.answer.empty()) return true;
    if (!send_answer(client)) return false;
    if (!client.answer.empty()) return true;  // the socket's buffer is full
  }
}

bool JobServer::read_question(Client& client) {
  auto end = client.question.find('\n');
  if (end == client.question.npos) {
    char buffer[kMaxQuestionBytes];
    const ssize_t count = recv(client.fd.value(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    client.question.append(buffer, static_cast<size_t>(count));
    end = client.question.find('\n');
    if (end == client.question.npos) return count > 0 && client.question.size() < kMaxQuestionBytes;
  }
  const auto question = client.question.substr(0, end);
  client.question.erase(0, end + 1);
  client.last_seen = ++num_acts_;
  try {
    obey(client, question);
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;  // not a question
  }
}

void JobServer::obey(Client& client, std::string_view question) {
  const auto json = Json::parse(question);
  const auto command = json.at("command").get<std::string>();
  if (command == "logs") {
    client.is_following = json.at("follow").get<bool>();
    client.cursor.emplace();
    client.num_gone = lines_.num_overwritten();
    if (json.contains("last")) {
      const auto tail = lines_.last(json["last"].get<uint64_t>(), rank_of(json));
      client.cursor = tail.begin;
      if (tail.is_whole) client.num_gone = 0;
    }
    return;
  }
  if (command == "stop") stop_(json.at("now").get<bool>() ? StopHow::kNow : StopHow::kWithGrace);
  const auto answer = command == "stop" || command == "job" ? to_json(job_) : Json{{"error", "unknown command"}};
  client.answer = json_line(answer) + '\n';  // arguments need not be UTF-8
}

/// A line is sent as the object {"rank", "stream", "missed", "gone", "bytes"}, followed by its text, which has "bytes"
/// bytes. The text is not in the object, because it may not be UTF-8.
void JobServer::add_lines(Client& client) const {
  if (!client.cursor) return;
  while (client.answer.size() < kMaxWaitingBytes) {
    const auto line = lines_.next(*client.cursor);
    if (!line) {
      if (client.is_following) return;
      client.cursor.reset();
      client.answer += "{\"end\":true}\n";
      return;
    }
    client.answer += fmt::format("{{\"rank\":{},\"stream\":\"{}\",\"missed\":{},\"gone\":{},\"bytes\":{}}}\n{}",
                                 line->rank, line->stream == LineStream::kOut ? "stdout" : "stderr", line->num_missed,
                                 std::exchange(client.num_gone, 0), line->text.size(), line->text);
  }
}

bool JobServer::send_answer(Client& client) {
  auto& answer = client.answer;
  const ssize_t count = send(client.fd.value(), answer.data() + client.num_sent, answer.size() - client.num_sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  client.last_seen = ++num_acts_;
  client.num_sent += static_cast<size_t>(count);
  if (client.num_sent < answer.size()) return true;
  answer.clear();
  client.num_sent = 0;
  return true;
}

void JobServer::finish(std::chrono::milliseconds limit) {
  listener_.reset();
  is_called_ = false;
  is_finishing_ = true;
  for (auto& client : clients_) client.is_following = client.is_ready = false;
  EventLoop loop;
  const std::array<EventSource*, 1> sources = {this};
  const auto until = loop.now() + limit;
  for (handle(loop.now()); !clients_.empty() && loop.now() < until;) {
    loop.turn(sources, std::chrono::ceil<std::chrono::milliseconds>(until - loop.now()));
  }
}

}  // namespace yoke::launch
