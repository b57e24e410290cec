#include "yoke/profile/recorder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/base/user_socket.h"

namespace yoke::profile {

std::string Recorder::listen() {
  std::string name;
  listener_ = listen_as_user(kProfilingService, &name);
  if (!listener_) throw system_error(errno, "listening for the ranks to profile");
  return name;
}

void Recorder::ask(LineConnection connection, const AskedProgram& program) {
  programs_.emplace(num_programs_++, Program{.connection = std::move(connection), .asked = program});
}

void Recorder::add_to(std::vector<pollfd>& polls) const {
  if (listener_) polls.push_back({listener_.value(), POLLIN, 0});
  for (const auto& [_, program] : programs_) polls.push_back({program.connection.fd(), POLLIN, 0});
}

void Recorder::handle() {
  accept_some();
  for (auto& [number, program] : programs_) read(number, program);
  std::erase_if(programs_, [](const auto& one) { return one.second.connection.is_closed(); });
}

void Recorder::accept_some() {
  if (!listener_) return;
  for (auto fd = accept_connection(listener_.value()); fd; fd = accept_connection(listener_.value())) {
    const auto peer = peer_of(fd.value());
    if (!peer || peer->uid != geteuid()) continue;
    programs_.emplace(num_programs_++, Program{.connection = LineConnection(std::move(fd))});
  }
}

void Recorder::read(int64_t number, Program& program) {
  while (const auto line = program.connection.next()) {
    last_news_ = std::chrono::steady_clock::now();
    const auto news = parse_news(*line);
    const auto hello = program.has_said_hello ? std::nullopt : parse_hello(*line);
    if (hello) {
      on_hello(number, program, *hello);
    } else if (news && program.has_said_hello) {
      recording_.on_news(number, *news);
    } else if (news && news->failure && program.asked) {
      recording_.fail(*news->failure);
    }
  }
  if (!program.connection.is_closed()) return;
  recording_.on_closed(number);
  if (program.asked && !program.has_said_hello) {
    recording_.fail(fmt::format("process {} ended before it answered", program.asked->pid));
  }
}

void Recorder::on_hello(int64_t number, Program& program, const ProfileHello& hello) {
  program.has_said_hello = true;
  if (program.asked && (hello.pid != program.asked->pid || hello.start_ticks != program.asked->start_ticks)) {
    recording_.fail(fmt::format("process {} is another one now than when it was asked", program.asked->pid));
    return program.connection.close();
  }
  for (const auto& answer : recording_.on_hello(number, hello)) {
    const auto found = programs_.find(answer.connection);
    if (found == programs_.end()) continue;  // it has ended
    auto& connection = found->second.connection;
    answer.request ? connection.send(to_line(*answer.request)) : connection.close();
  }
}

}  // namespace yoke::profile
