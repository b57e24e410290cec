#include "yoke/stack/tools.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/process.h"

namespace yoke::stack {
namespace {

constexpr size_t kMaxTextBytes = 16 << 20;
constexpr std::chrono::seconds kPatience{1};  // how long a killed tool may take to end

class Tool {
 public:
  Tool(ToolRun& run, const std::vector<std::string>& environment, Clock::time_point until) : run_(&run), until_(until) {
    auto pipe = make_pipe();
    pid_ = spawn({.argv = run.argv,
                  .environment = environment,
                  .in = kNullStream,
                  .out = pipe.write_end.value(),
                  .err = pipe.write_end.value(),
                  .process_group = 0,  // its own group, so that the tool's child processes are killed with it
                  .death_signal = SIGKILL});
    if (pid_ < 0) throw system_error(errno, "starting " + run.argv[0]);
    out_ = std::move(pipe.read_end);
  }
  Tool(Tool&& other) noexcept = default;
  ~Tool() {
    if (!out_) return;  // a moved-from object has no process
    kill(-pid_, SIGKILL);
    // Does not wait longer for a tool that hangs in the kernel together with its process.
    const auto until = Clock::now() + kPatience;
    while (waitpid(pid_, nullptr, WNOHANG) == 0 && Clock::now() < until) poll(nullptr, 0, 1);
  }

  int fd() const { return out_.value(); }
  Clock::time_point until() const { return until_; }

  /// Returns false if the tool has ended or has missed its deadline.
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

void run_tools(std::vector<ToolRun>& runs, const Environment& environment, const ToolLimits& limits) {
  auto clean = environment;
  clean.erase("DEBUGINFOD_URLS");  // otherwise tools would query servers for symbols, for minutes
  const auto variables = clean.to_strings();
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
