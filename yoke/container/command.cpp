#include "yoke/container/command.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/process.h"

namespace yoke::container {
namespace {

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return 127;
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

Output run_quietly(const std::vector<std::string>& argv, const Environment& environment) {
  auto out = make_pipe();
  auto err = make_pipe();
  const pid_t pid = spawn({.argv = argv,
                           .environment = environment.to_strings(),
                           .in = kNullStream,
                           .out = out.write_end.value(),
                           .err = err.write_end.value()});
  if (pid < 0) throw system_error(errno, "starting a process for " + argv[0]);
  out.write_end.reset();
  err.write_end.reset();
  Output output;
  std::array<pollfd, 2> news = {{{out.read_end.value(), POLLIN, 0}, {err.read_end.value(), POLLIN, 0}}};
  const std::array texts = {&output.out, &output.err};
  while (news[0].fd >= 0 || news[1].fd >= 0) {
    poll(news.data(), news.size(), -1);
    for (size_t i = 0; i < news.size(); ++i) {
      if (news[i].fd < 0 || news[i].revents == 0) continue;
      std::array<char, 4096> buffer;
      const auto count = read(news[i].fd, buffer.data(), buffer.size());
      if (count > 0) texts[i]->append(buffer.data(), static_cast<size_t>(count));
      if (count == 0 || (count < 0 && errno != EINTR)) news[i].fd = -1;
    }
  }
  output.status = wait_for(pid);
  return output;
}

int run_visibly(const std::vector<std::string>& argv, const Environment& environment) {
  const pid_t pid =
      spawn({.argv = argv, .environment = environment.to_strings(), .in = kNullStream, .out = STDERR_FILENO});
  if (pid < 0) throw system_error(errno, "starting a process for " + argv[0]);
  return wait_for(pid);
}

}  // namespace yoke::container
