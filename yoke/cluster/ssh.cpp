#include "yoke/cluster/ssh.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>

#include "yoke/base/error.h"

namespace yoke::cluster {
namespace {

/// In single quotes nothing is special, in sh and csh alike, but the quote itself ('!' is csh's, where it is
/// interactive).
std::string quote(const std::string& word) {
  std::string result = "'";
  for (const char c : word) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
  return result + "'";
}

}  // namespace

std::vector<std::string> ssh_command(const SshOptions& options, const std::string& host) {
  auto words = options.ssh;
  // -T: no terminal. Of options given twice ssh takes the first: the user's.
  for (const char* word : {"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"}) words.emplace_back(word);
  words.push_back(host);
  words.push_back(fmt::format("exec {} agent", quote(options.yoke)));
  return words;
}

launch::AgentProcess start_by_ssh(const SshOptions& options, const std::string& host) {
  const auto words = ssh_command(options, host);
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  auto in = make_pipe(), out = make_pipe(), err = make_pipe();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw system_error(errno, fmt::format("starting {} for host {}", words.front(), host));
  if (pid == 0) {
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    dup2(in.read_end.value(), STDIN_FILENO);
    dup2(out.write_end.value(), STDOUT_FILENO);
    dup2(err.write_end.value(), STDERR_FILENO);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execvp(argv[0], argv.data());
    const char* const why = std::strerror(errno);
    for (const char* text : {static_cast<const char*>(argv[0]), ": ", why, "\n"}) {
      [[maybe_unused]] const auto count = write(STDERR_FILENO, text, std::strlen(text));
    }
    _exit(127);
  }
  return {std::move(in.write_end), std::move(out.read_end), std::move(err.read_end), pid};
}

}  // namespace yoke::cluster
