#include "yoke/stack/tools.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::stack {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxTextBytes = 16 << 20;
constexpr std::chrono::seconds kPatience{1};  // how long a killed tool may take to end

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const auto& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

/// Only calls that are safe between fork and exec.
[[noreturn]] void become(char** argv, char** environment, int out, pid_t parent) {
  setpgid(0, 0);  // a group of its own: its children are killed with it
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  execve(argv[0], argv, environment);
  _exit(127);
}

class Tool {
 public:
  Tool(ToolRun& run, std::vector<std::string>& environment, Clock::time_point until) : run_(&run), until_(until) {
    auto pipe = make_pipe();
    auto argv = pointers(run.argv), variables = pointers(environment);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ < 0) throw system_error(errno, "starting " + run.argv[0]);
    if (pid_ == 0) become(argv.data(), variables.data(), pipe.write_end.value(), parent);
    setpgid(pid_, pid_);  // parent and child both do this, because either may run first
    out_ = std::move(pipe.read_end);
  }
  Tool(Tool&& other) noexcept = default;
  ~Tool() {
    if (!out_) return;  // moved from
    kill(-pid_, SIGKILL);
    // A tool that hangs in the kernel together with its process is left behind.
    const auto until = Clock::now() + kPatience;
    while (waitpid(pid_, nullptr, WNOHANG) == 0 && Clock::now() < until) poll(nullptr, 0, 1);
  }

  int fd() const { return out_.value(); }
  Clock::time_point until() const { return until_; }

  /// Returns false once the tool has ended or is late.
  bool go_on(bool can_read) {
    if (Clock::now() >= until_) {
      run_->timed_out = true;
      return false;
    }
    if (!can_read) return true;
    char buffer[1 << 16];
    const ssize_t count = read(out_.value(), buffer, sizeof buffer);
    if (count < 0) return errno == EINTR;
    run_->text.append(buffer, static_cast<size_t>(count));
    return count > 0 && run_->text.size() < kMaxTextBytes;
  }

 private:
  ToolRun* run_;
  Clock::time_point until_;
  pid_t pid_ = -1;
  UniqueFd out_;
};

}  // namespace

std::optional<std::string> find_program(std::string_view name, const Environment& environment) {
  const auto path = environment.value_or("PATH", "/usr/bin:/bin");
  for (std::string_view rest = path; !rest.empty();) {
    const auto folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    if (folder.empty() || folder[0] != '/') continue;  // the current folder may belong to anybody
    auto file = std::string(folder) + '/' + std::string(name);
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return std::nullopt;
}

void run_tools(std::vector<ToolRun>& runs, const Environment& environment, const ToolLimits& limits) {
  auto clean = environment;
  clean.erase("DEBUGINFOD_URLS");  // otherwise the tools ask servers for symbols, for minutes
  auto variables = clean.to_strings();
  std::vector<Tool> tools;
  for (size_t next = 0; next < runs.size() || !tools.empty();) {
    while (next < runs.size() && tools.size() < limits.at_once) {
      tools.emplace_back(runs[next++], variables, Clock::now() + limits.deadline);
    }
    std::vector<pollfd> polls;
    auto until = Clock::time_point::max();
    for (const auto& tool : tools) {
      polls.push_back({tool.fd(), POLLIN, 0});
      until = std::min(until, tool.until());
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    poll(polls.data(), polls.size(), static_cast<int>(std::max<int64_t>(0, left)));
    std::vector<Tool> running;
    for (size_t i = 0; i < tools.size(); ++i) {
      if (tools[i].go_on(polls[i].revents != 0)) running.push_back(std::move(tools[i]));
    }
    tools = std::move(running);
  }
}

}  // namespace yoke::stack
