#include "yoke/cluster/ssh.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/shell.h"

namespace yoke::cluster {

std::vector<std::string> ssh_command(const SshOptions& options, const std::string& host) {
  auto words = options.ssh;
  // -T: no terminal. If an option is given twice, ssh uses the first one, so the user's options precede these.
  words.emplace_back("-T");
  // What ~/.ssh/config adds for people would fail here: a command of the host's entry (ssh refuses two), and forwarded
  // ports, which only one connection can have (ExitOnForwardFailure). scp overrides both too.
  for (const char* option : {"BatchMode=yes", "ConnectTimeout=10", "RemoteCommand=none", "ClearAllForwardings=yes"}) {
    words.insert(words.end(), {"-o", option});
  }
  words.push_back(host);
  words.push_back(fmt::format("exec {} agent", shell_quoted(options.yoke)));
  return words;
}

launch::AgentProcess start_by_ssh(const SshOptions& options, const std::string& host) {
  return start_by_command(ssh_command(options, host), host);
}

launch::AgentProcess start_by_command(const std::vector<std::string>& argv, const std::string& host,
                                      std::optional<std::vector<std::string>> environment) {
  auto in = make_pipe(), out = make_pipe(), err = make_pipe();
  const pid_t pid = spawn({.argv = argv,
                           .environment = std::move(environment),
                           .in = in.read_end.value(),
                           .out = out.write_end.value(),
                           .err = err.write_end.value(),
                           .new_session = true,
                           .death_signal = SIGKILL,
                           .blocked_signals = BlockedSignals::kNone,
                           .exec_failed = [&argv](int error_number) {
                             const char* const why = std::strerror(error_number);
                             for (const char* text : {argv[0].c_str(), ": ", why, "\n"}) {
                               [[maybe_unused]] const auto count = write(STDERR_FILENO, text, std::strlen(text));
                             }
                           }});
  if (pid < 0) throw system_error(errno, fmt::format("starting {} for host {}", argv.front(), host));
  return {std::move(in.write_end), std::move(out.read_end), std::move(err.read_end), pid};
}

}  // namespace yoke::cluster
