#include "yoke/environment/kernel_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"

namespace yoke::environment {

const std::string* connection_file(const std::vector<std::string>& kernel) {
  const auto option = std::ranges::find(kernel, "-f");
  return option == kernel.end() || option + 1 == kernel.end() ? nullptr : &*(option + 1);
}

std::vector<std::string> refusal_command(const std::vector<std::string>& kernel, const std::string& script,
                                         const std::string& reason) {
  std::vector<std::string> words = {kernel[0], script, printable(reason)};
  if (const auto* const connection = connection_file(kernel)) words.insert(words.end(), {"-f", *connection});
  return words;
}

void end_with_server(const Environment& environment) {
  const auto server = parse_int(environment.value_or("JPY_PARENT_PID", ""));
  if (!server || *server != getppid()) return;
  const auto end = open_process(*server);
  const pid_t keeper = getpid();
  if (!end || getppid() != *server || fork() != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  constexpr int kKept = 3;
  if (end.value() != kKept) dup2(end.value(), kKept);
  close_from(kKept + 1);  // the locks of the claim, too
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null.value(), stream);
  for (pollfd news{kKept, POLLIN, 0}; getppid() == keeper;) {
    if (poll(&news, 1, -1) == 1) kill(keeper, SIGTERM);
    if (news.revents != 0) break;
  }
  _exit(0);
}

}  // namespace yoke::environment
