#include "yoke/storage/in_children.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "yoke/base/file.h"
#include "yoke/base/process.h"

namespace yoke::storage {
namespace {

struct Child {
  pid_t pid = -1;
  UniqueFd output;
  std::string bytes;
};

/// Those that have not ended are killed at the end, and nobody waits for them.
struct Children {
  std::vector<Child> list;
  ~Children() {
    for (const auto& child : list) {
      if (child.output) kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, child.output ? WNOHANG : 0);
    }
  }
};

/// The first byte is an ErrorCode, or kDone. It is followed by the text or the message.
constexpr char kDone = '\x7f';

/// Closes all descriptors of the child except `output`, so that a reader of this command's output does not wait for the
/// child.
void keep_only(int output) {
  const int null = open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, stream);
  dup2(output, 3);
  close_from(4);
}

[[noreturn]] void work_in_child(const Work& work, int output) {
  keep_only(output);
  std::string bytes;
  try {
    bytes = kDone + work();
  } catch (const Error& error) {
    bytes = static_cast<char>(error.code()) + std::string(error.what());
  } catch (const std::exception& error) {
    bytes = static_cast<char>(ErrorCode::kInternal) + std::string(error.what());
  }
  try {
    write_all(3, bytes, "the result");
  } catch (const Error&) {  // the reader has gone
  }
  _exit(0);
}

Child start(const Work& work) {
  auto pipe = make_pipe();
  const pid_t parent = getpid();
  const pid_t pid = fork();  // not spawn(): the child continues in this function
  if (pid < 0) throw system_error(errno, "starting a process that looks at file systems");
  if (pid == 0) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) std::signal(signal, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    work_in_child(work, pipe.write_end.value());
  }
  return {pid, std::move(pipe.read_end), {}};
}

Outcome outcome_of(const Child& child) {
  if (child.bytes.empty()) return {{}, ErrorCode::kInternal, "the process that did the work was killed"};
  if (child.bytes[0] == kDone) return {child.bytes.substr(1), {}, ""};
  return {{}, static_cast<ErrorCode>(child.bytes[0]), child.bytes.substr(1)};
}

/// Reads what has come. Returns whether the child has closed its end.
bool read_some(Child& child) {
  char buffer[4096];
  const ssize_t count = read(child.output.value(), buffer, sizeof buffer);
  if (count > 0) child.bytes.append(buffer, static_cast<size_t>(count));
  return count == 0 || (count < 0 && errno != EINTR);
}

}  // namespace

const std::string& Outcome::value() const {
  if (!text) throw Error(code, message);
  return *text;
}

std::vector<std::optional<Outcome>> in_children(const std::vector<Work>& works, const Deadline& deadline,
                                                const std::function<void()>& on_wait) {
  Children started;
  auto& children = started.list;
  for (const auto& work : works) children.push_back(start(work));
  std::vector<std::optional<Outcome>> outcomes(works.size());
  for (;;) {
    std::vector<pollfd> polls;
    for (const auto& child : children) polls.push_back({child.output.value(), POLLIN, 0});  // those below 0 are skipped
    if (std::ranges::none_of(children, [](const Child& child) { return bool{child.output}; })) break;
    const auto left = deadline.left();
    if (left.count() == 0) break;
    poll(polls.data(), polls.size(), static_cast<int>(std::min<int64_t>(left.count(), 100)));
    if (on_wait) on_wait();
    for (size_t i = 0; i < children.size(); ++i) {
      if (polls[i].revents == 0 || !read_some(children[i])) continue;
      outcomes[i] = outcome_of(children[i]);
      children[i].output.reset();
    }
  }
  return outcomes;
}

std::string in_child(const Work& work, const Deadline& deadline, const std::string& what,
                     const std::function<void()>& on_wait) {
  const auto outcome = in_children({work}, deadline, on_wait).front();
  if (!outcome) throw Error(ErrorCode::kTimeout, "{} got no answer in {}", what, seconds_text(deadline.limit()));
  return outcome->value();
}

std::string seconds_text(Seconds seconds) { return fmt::format("{:.4g} s", seconds.count()); }

}  // namespace yoke::storage
