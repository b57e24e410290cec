#include "tests/support/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/support/look_again.h"

namespace yoke::test {
namespace {

std::vector<pid_t> all_pids() {
  std::vector<pid_t> result;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") == name.npos) result.push_back(std::stoi(name));
  }
  return result;
}

/// Returns the state and the parent's PID, which follow the name in /proc/PID/stat.
std::pair<char, pid_t> state_and_parent(pid_t pid) {
  const auto stat = slurp(fmt::format("/proc/{}/stat", pid));
  const auto end = stat.rfind(')');
  if (end == stat.npos) return {'X', 0};
  std::istringstream rest(stat.substr(end + 1));
  char state = 'X';
  pid_t parent = 0;
  rest >> state >> parent;
  return {state, parent};
}

bool is_alive(pid_t pid) {
  const char state = state_of(pid);
  return state != 'X' && state != 'Z';
}

void read_some(UniqueFd& fd, std::string& text) {
  char buffer[65536];
  const ssize_t count = read(fd.value(), buffer, sizeof buffer);
  if (count > 0) {
    text.append(buffer, static_cast<size_t>(count));
  } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
    fd.reset();  // reading a terminal without a writer fails with EIO
  }
}

[[noreturn]] void become(const CommandOptions& options, int in, int out, int err) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) ::signal(number, SIG_DFL);
  dup2(in, 0);
  dup2(out, 1);
  dup2(err, 2);
  if (options.on_terminal) {
    setsid();
    ioctl(1, TIOCSCTTY, 0);
    setenv("TERM", "xterm", 1);
  }
  if (options.own_group) {
    setpgid(0, 0);
    ::signal(SIGTSTP, SIG_DFL);
  }
  if (!options.folder.empty() && chdir(options.folder.c_str()) != 0) _exit(125);
  for (const auto& name : options.without) unsetenv(name.c_str());
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  if (options.file_limit) {
    const rlimit limit{*options.file_limit, *options.file_limit};
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  std::vector<char*> argv;
  for (const auto& word : options.argv) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  _exit(125);
}

UniqueFd input_of(const std::string& text) {
  if (text.empty()) return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  auto pipe = make_pipe();  // standard input in tests is so short that it fits into the pipe's buffer
  if (write(pipe.write_end.value(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw std::runtime_error("writing standard input");
  }
  return std::move(pipe.read_end);
}

}  // namespace

Command::Command(const CommandOptions& options) : leave_unread_(options.leave_unread) {
  const auto in = input_of(options.input);
  UniqueFd out, err;
  if (options.on_terminal) {
    int master = -1, slave = -1;
    if (openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) throw std::runtime_error("openpty");
    fcntl(master, F_SETFD, FD_CLOEXEC);
    fcntl(slave, F_SETFD, FD_CLOEXEC);
    out_fd_ = UniqueFd(master);
    out = UniqueFd(slave);
    err = UniqueFd(fcntl(slave, F_DUPFD_CLOEXEC, 3));
  } else {
    auto out_pipe = make_pipe();
    out_fd_ = std::move(out_pipe.read_end);
    out = std::move(out_pipe.write_end);
    if (options.join_outputs) {
      err = UniqueFd(fcntl(out.value(), F_DUPFD_CLOEXEC, 3));
    } else {
      auto err_pipe = make_pipe();
      err_fd_ = std::move(err_pipe.read_end);
      err = std::move(err_pipe.write_end);
    }
  }
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ == 0) become(options, options.input_fd.value_or(in.value()), out.value(), err.value());
  if (options.own_group) setpgid(pid_, pid_);  // whichever process comes first
}

Command::~Command() {
  if (!reap()) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

void Command::signal(int number) const { kill(pid_, number); }

void Command::close_output() {
  out_fd_.reset();
  err_fd_.reset();
}

void Command::pump(milliseconds limit) {
  if (leave_unread_) {
    poll(nullptr, 0, static_cast<int>(limit.count()));  // clock: a part of the loop of wait_until()
    return;
  }
  pollfd polls[] = {{out_fd_.value(), POLLIN, 0}, {err_fd_.value(), POLLIN, 0}};
  if (poll(polls, 2, static_cast<int>(limit.count())) <= 0) return;
  if (polls[0].revents != 0) read_some(out_fd_, out_);
  if (polls[1].revents != 0) read_some(err_fd_, err_);
}

bool Command::reap() {
  int status = 0;
  if (!status_ && waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return status_.has_value();
}

bool Command::wait_until(const std::function<bool()>& condition, milliseconds limit) {
  for (LookAgain again(limit); !condition(); pump(again.pause())) {
    if (again.is_too_late()) return false;
  }
  return true;
}

bool Command::wait_for_output(std::string_view text) {
  return wait_until([&] { return out_.find(text) != out_.npos || err_.find(text) != err_.npos; });
}

Result Command::wait(milliseconds limit) {
  leave_unread_ = false;
  Result result;
  result.timed_out = !wait_until([&] { return reap(); }, limit);
  if (!result.timed_out) {
    // Processes that remain may hold the pipes open. The tests of orphans look for such processes; this function does
    // not wait for them.
    wait_until([&] { return !out_fd_ && !err_fd_; }, milliseconds(500));
    result.exit_code = WIFSIGNALED(*status_) ? 128 + WTERMSIG(*status_) : WEXITSTATUS(*status_);
  }
  result.out = out_;
  result.err = err_;
  return result;
}

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Result run(const CommandOptions& options) { return Command(options).wait(); }

bool wait_until(const std::function<bool()>& condition, milliseconds limit) {
  for (LookAgain again(limit); !condition(); poll(nullptr, 0, static_cast<int>(again.pause().count()))) {
    if (again.is_too_late()) return false;
  }
  return true;
}

std::string new_tag() {
  static std::atomic<int> count{0};
  return fmt::format("{}-{}", getpid(), ++count);
}

std::vector<pid_t> processes_with_tag(const std::string& tag) {
  const auto wanted = "YOKE_TEST_TAG=" + tag + '\0';
  std::vector<pid_t> result;
  for (const auto pid : all_pids()) {
    if (slurp(fmt::format("/proc/{}/environ", pid)).find(wanted) != std::string::npos && is_alive(pid)) {
      result.push_back(pid);
    }
  }
  return result;
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> result;
  for (const auto pid : all_pids()) {
    if (state_and_parent(pid).second == parent) result.push_back(pid);
  }
  return result;
}

char state_of(pid_t pid) { return state_and_parent(pid).first; }

std::optional<pid_t> guardian_of(pid_t launcher) {
  for (const auto pid : children_of(launcher)) {
    if (slurp(fmt::format("/proc/{}/comm", pid)) == "yoke-guardian\n") return pid;
  }
  return std::nullopt;
}

TemporaryFolder::TemporaryFolder() : path_(std::filesystem::temp_directory_path() / "yoke-test-XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp");
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::path(std::string_view file) const {
  return file.empty() ? path_ : fmt::format("{}/{}", path_, file);
}

void TemporaryFolder::write(const std::string& file, const std::string& text, bool executable) const {
  const std::filesystem::path target = path(file);
  std::filesystem::create_directories(target.parent_path());
  std::ofstream(target) << text;
  if (executable) std::filesystem::permissions(target, std::filesystem::perms{0755});
}

}  // namespace yoke::test
