#include "tests/support/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "tests/support/look_again.h"

namespace yoke::test {
namespace {

[[noreturn]] void become_shell(const std::vector<std::pair<std::string, std::string>>& environment) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int number = 1; number < 32; ++number) ::signal(number, SIG_DFL);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  execlp("bash", "bash", "--noprofile", "--norc", "--noediting", "-i", nullptr);
  _exit(125);
}

}  // namespace

ShellOnTerminal::ShellOnTerminal(std::vector<std::pair<std::string, std::string>> environment) {
  std::vector<std::pair<std::string, std::string>> whole = {
      {"TERM", "xterm"}, {"NO_COLOR", "1"}, {"PS1", "shell$ "}, {"YOKE_TEST_TAG", tag_}, {"HISTFILE", ""}};
  whole.insert(whole.end(), environment.begin(), environment.end());
  int terminal = -1;
  const winsize size{24, 80, 0, 0};
  shell_ = forkpty(&terminal, nullptr, nullptr, &size);
  if (shell_ < 0) throw std::runtime_error("forkpty");
  if (shell_ == 0) become_shell(whole);
  fcntl(terminal, F_SETFD, FD_CLOEXEC);
  terminal_ = UniqueFd(terminal);
  if (!shows("shell$ ")) throw std::runtime_error("the shell does not start: " + out_);
}

ShellOnTerminal::~ShellOnTerminal() {
  kill(shell_, SIGKILL);
  waitpid(shell_, nullptr, 0);
  for (const auto pid : processes_with_tag(tag_)) kill(pid, SIGKILL);
}

void ShellOnTerminal::type(std::string_view bytes) const {
  if (write(terminal_.value(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    throw std::runtime_error("typing");
  }
}

void ShellOnTerminal::read_for(milliseconds limit) {
  pollfd ready{terminal_.value(), POLLIN, 0};  // after the terminal was closed, this only waits
  if (poll(&ready, 1, static_cast<int>(limit.count())) <= 0) return;
  char buffer[65536];
  const ssize_t count = read(terminal_.value(), buffer, sizeof buffer);
  if (count > 0) out_.append(buffer, static_cast<size_t>(count));
}

bool ShellOnTerminal::wait_until(const std::function<bool()>& condition, milliseconds limit) {
  for (LookAgain again(limit); !condition(); read_for(again.pause())) {
    if (again.is_too_late()) return false;
  }
  return true;
}

bool ShellOnTerminal::shows(std::string_view text) {
  return wait_until([&] { return out_.find(text) != out_.npos; });
}

std::string ShellOnTerminal::line_of(const std::string& path) {
  std::string line;
  wait_until([&] {
    std::ifstream file(path);
    return std::getline(file, line) && !file.eof();  // the line ends with a line feed, so it is complete
  });
  return line;
}

}  // namespace yoke::test
