#include "yoke/program/program_tree.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>

#include "yoke/base/user_socket.h"

namespace yoke::program {
namespace {

using std::chrono::milliseconds;

/// A keeper gives its container ten seconds, kills it, and removes it.
constexpr std::chrono::seconds kKeeperLimit{30};
constexpr std::chrono::seconds kRemoval{2};

/// The time since the start of the machine in the unit of Process::start_ticks.
uint64_t ticks_now() {
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const auto per_second = static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  return static_cast<uint64_t>(now.tv_sec) * per_second +
         static_cast<uint64_t>(now.tv_nsec) * per_second / 1'000'000'000;
}

milliseconds time_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
}

bool has(const ProcessTimes& processes, const launch::Process& process) {
  const auto found = processes.find(process.pid);
  return found != processes.end() && found->second == process.start_ticks;
}

TreeRole role_of(const launch::Process& process, const ProcessTimes& keepers) {
  if (has(keepers, process)) return TreeRole::kContainerKeeper;
  return process.session == getsid(0) ? TreeRole::kOfSession : TreeRole::kOther;
}

}  // namespace

TreeStep tree_step(TreeRole role, const TreeTime& time, bool is_told) {
  auto waited = time.since_begin;
  auto grace = milliseconds(kTreeGrace);
  if (role == TreeRole::kContainerKeeper) grace = kKeeperLimit;
  if (role == TreeRole::kOther) {
    if (!time.since_containers && time.since_begin < kKeeperLimit) return TreeStep::kNone;
    waited = time.since_containers.value_or(time.since_begin);
    // The engine removes the container, for which its keeper does not wait.
    if (time.had_containers && waited < kRemoval) return TreeStep::kNone;
  }
  // A program that starts others again and again must end, too, so the time does not count from the start of each.
  if (waited >= grace) return TreeStep::kKill;
  return is_told ? TreeStep::kNone : TreeStep::kTerminate;
}

ProgramTree::ProgramTree() {
  launch::become_subreaper();
  for (const auto& process : launch::descendants()) left_out_[process.pid] = process.start_ticks;
}

void ProgramTree::leave_out(pid_t child) {
  if (child <= 0 || left_out_.contains(child)) return;
  if (const auto start = start_ticks_of(child)) left_out_[child] = static_cast<uint64_t>(*start);
}

bool ProgramTree::is_left_out(const launch::Process& process) const { return has(left_out_, process); }

void ProgramTree::reap_orphans(pid_t program) const {
  for (const auto& process : launch::descendants()) {
    const bool is_orphan = process.parent == getpid() && process.pid != program && !is_left_out(process);
    if (is_orphan && process.is_zombie) waitpid(process.pid, nullptr, WNOHANG);
  }
}

/// What a program starts to end well, such as a copy of its results, must not be ended by the signal that caused it.
bool ProgramTree::is_told(const launch::Process& process) const {
  return has(told_, process) || process.start_ticks >= begin_ticks_;
}

std::vector<launch::Process> ProgramTree::running() const {
  auto found = launch::descendants();
  std::erase_if(found, [&](const launch::Process& process) { return process.is_zombie || is_left_out(process); });
  return found;
}

std::vector<launch::Process> ProgramTree::end(pid_t program, const ProcessTimes& keepers) {
  reap_orphans(program);
  if (!begin_) {
    begin_ = Clock::now();
    begin_ticks_ = ticks_now();
  }
  if (!keepers.empty()) {
    containers_ended_.reset();
    had_containers_ = true;
  }
  // Those who never were there have ended with the begin.
  if (keepers.empty() && !containers_ended_) containers_ended_ = had_containers_ ? Clock::now() : *begin_;
  TreeTime time{.since_begin = time_since(*begin_), .since_containers = {}, .had_containers = had_containers_};
  if (containers_ended_) time.since_containers = time_since(*containers_ended_);
  std::vector<launch::Process> left;
  // One look may miss a process that starts meanwhile, and a program may start some when it is told.
  constexpr int kLooks = 3;
  for (int look = 0; look < kLooks; ++look) {
    left = running();
    for (const auto& process : left) {
      const auto step = tree_step(role_of(process, keepers), time, is_told(process));
      if (step == TreeStep::kNone) continue;
      launch::signal_process(process, step == TreeStep::kKill ? SIGKILL : SIGTERM);
      told_[process.pid] = process.start_ticks;
    }
  }
  if (left.empty()) reap_orphans(program);
  return left;
}

}  // namespace yoke::program
