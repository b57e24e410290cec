#include "yoke/cluster/resident.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <iostream>
#include <system_error>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/host.h"
#include "yoke/base/hostlist.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/cluster/token.h"
#include "yoke/contract/variables.h"
#include "yoke/device/cpu/count.h"
#include "yoke/launch/node/rendezvous.h"
#include "yoke/launch/process/signals.h"
#include "yoke/slurm/job/holding.h"
#include "yoke/slurm/job/job.h"
#include "yoke/slurm/words/programs.h"

namespace yoke::cluster {
namespace {

constexpr std::string_view kAnnouncement = "yoke-resident";
constexpr std::chrono::seconds kResidentTurn{1};

/// The address of this machine at which the peer of `socket` reached it. A peer on this machine may have used the
/// loopback, which is of no use to other nodes; then it is Slurm's name of the node.
std::string own_address(int socket, const Environment& environment) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (getsockname(socket, generic, &size) != 0) return "";
  const auto text = address_text(generic, size);
  return text.starts_with("127.") || text == "::1" ? environment.value_or("SLURMD_NODENAME", text) : text;
}

void start_agent(const UniqueFd& socket, const std::string& yoke, Environment environment) {
  environment.set(variable::kNodeAddress, own_address(socket.value(), environment));
  const pid_t pid = spawn({.argv = {yoke, "agent"},
                           .environment = environment.to_strings(),
                           .in = socket.value(),
                           .out = socket.value(),
                           .new_session = true,
                           .death_signal = SIGTERM,
                           .blocked_signals = BlockedSignals::kNone});
  if (pid < 0)
    std::cerr << fmt::format("yoke agent: starting {}: {}\n", yoke, std::generic_category().message(errno))
              << std::flush;
}

/// How long all nodes may take to start their resident agents.
constexpr std::chrono::seconds kStartTime{180};
/// A step that ends sooner than this after its start counts as a failure of the step.
constexpr std::chrono::seconds kShortStep{60};
constexpr int kMaxShortSteps = 3;
constexpr std::chrono::milliseconds kEndTime{2000};
constexpr std::chrono::milliseconds kWhyTime{500};  ///< KillWait may be short.
constexpr size_t kMaxAnnouncementBytes = 4096;
constexpr int kStepCheckMs = 500;
constexpr std::string_view kStepName = "yoke-agents";

void log(const std::string& text) { std::cerr << "yoke alloc: " << text << std::endl; }

/// Standard error and output become the file beside the allocation's file, if that can be made.
void open_log(const std::filesystem::path& file) {
  const UniqueFd fd(open(log_file(file).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return;
  dup2(fd.value(), STDOUT_FILENO);
  dup2(fd.value(), STDERR_FILENO);
}

/// The addresses at which Slurm reaches the nodes, by their names. A node that Slurm says nothing about has its name.
void add_addresses(std::vector<AllocationNode>& nodes, const std::string& list, const Environment& environment) {
  try {
    const auto text = slurm::ask({"scontrol", "--oneliner", "show", "node", list}, environment);
    for (const auto line : lines_of(text)) {
      const auto node = std::ranges::find(nodes, slurm::field_of(line, "NodeName"), &AllocationNode::name);
      const auto address = slurm::field_of(line, "NodeAddr");
      if (node != nodes.end() && !address.empty()) node->address = address;
    }
  } catch (const Error& error) {
    log(error.what());
  }
}

class Keeper {
 public:
  Keeper(Allocation allocation, const Environment& environment, std::string yoke)
      : allocation_(std::move(allocation)),
        environment_(slurm::without_outer_job(environment)),
        list_(environment.value_or("SLURM_JOB_NODELIST", "")),
        yoke_(std::move(yoke)),
        signals_(launch::take_signals({SIGTERM, SIGINT, SIGHUP, SIGQUIT})) {}

  int keep() {
    for (int num_short = 0; num_short < kMaxShortSteps;) {
      look_at_job();
      const auto began = Clock::now();
      start_step();
      const bool is_told_to_end = follow_step();
      if (is_told_to_end) log_end();
      end_step();
      if (is_told_to_end) {
        end_allocation(allocation_);
        return 0;
      }
      log(fmt::format("the step of the resident agents has ended, with status {}", shell_status(status_)));
      cancel_steps();
      num_short = Clock::now() - began < kShortStep ? num_short + 1 : 0;
    }
    log("the resident agents cannot be started, so the allocation is given back");
    unlink(allocation_.file.c_str());
    return 1;
  }

 private:
  /// After a failure of a node, a job with --no-kill has fewer nodes. A job's end may change, too.
  void look_at_job() {
    try {
      const auto job = slurm::find_job(allocation_.job, environment_);
      if (!job) return;
      if (!job->node_list.empty()) list_ = job->node_list;
      allocation_.until = slurm::end_of(*job);
    } catch (const Error& error) {
      log(error.what());
    }
  }

  void start_step() {
    waiting_.clear();
    found_.clear();
    for (const auto& name : expand_hostlist(list_)) waiting_.push_back({.name = name, .address = name});
    add_addresses(waiting_, list_, environment_);
    const auto num = waiting_.size();
    auto environment = environment_;
    environment.set(variable::kAllocSecret, allocation_.secret);
    auto pipe = make_pipe();
    // The step has all CPUs, devices and memory of the job; --overlap lets other steps have them, too.
    step_ = spawn({.argv = {"srun", "--jobid=" + allocation_.job, "--overlap", fmt::format("--nodes={}", num),
                            fmt::format("--ntasks={}", num), "--ntasks-per-node=1", "--cpu-bind=none", "--mem=0",
                            "--kill-on-bad-exit=1", fmt::format("--job-name={}", kStepName), "--input=none", "--quiet",
                            yoke_, "agent", "--resident"},
                   .environment = environment.to_strings(),
                   .in = kNullStream,
                   .out = pipe.write_end.value(),
                   .new_session = true,
                   .death_signal = SIGTERM,
                   .blocked_signals = BlockedSignals::kNone});
    if (step_ < 0) throw system_error(errno, "starting srun");
    out_ = std::move(pipe.read_end);
    received_.clear();
  }

  /// Returns whether a signal told this process to end; false if the step has ended.
  bool follow_step() {
    const auto limit = Clock::now() + kStartTime;
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now()).count();
      pollfd polls[] = {{signals_.value(), POLLIN, 0}, {out_.value(), POLLIN, 0}};
      poll(polls, 2, kStepCheckMs);  // the end of the step is no event of a descriptor
      while (const auto signal = launch::next_signal(signals_)) {
        if (!launch::is_job_control(signal->number) && signal->number != SIGUSR1 && signal->number != SIGUSR2)
          return true;
      }
      if (polls[1].revents != 0) read_announcements();
      if (waitpid(step_, &status_, WNOHANG) == step_) {
        step_ = -1;
        return false;
      }
      if (!waiting_.empty() && left <= 0) {
        log(fmt::format("{} of the nodes did not start their resident agents within {} s", waiting_.size(),
                        kStartTime.count()));
        return false;
      }
    }
  }

  void read_announcements() {
    char buffer[4096];
    const auto count = read(out_.value(), buffer, sizeof buffer);
    if (count <= 0) {
      if (count == 0 || errno != EINTR) out_.reset();
      return;
    }
    received_.append(buffer, static_cast<size_t>(count));
    for (auto end = received_.find('\n'); end != received_.npos; end = received_.find('\n')) {
      if (const auto node = parse_announcement(std::string_view(received_).substr(0, end))) take(*node);
      received_.erase(0, end + 1);
    }
    if (received_.size() > kMaxAnnouncementBytes) received_.clear();
  }

  void take(AllocationNode node) {
    const auto found = std::ranges::find(waiting_, node.name, &AllocationNode::name);
    if (found == waiting_.end()) return log("a resident agent of an unknown node: " + printable(node.name));
    node.address = found->address;
    waiting_.erase(found);
    found_.push_back(std::move(node));
    if (!waiting_.empty()) return;
    allocation_.nodes.clear();
    for (const auto& name : expand_hostlist(list_)) {  // in Slurm's order
      const auto one = std::ranges::find(found_, name, &AllocationNode::name);
      if (one != found_.end()) allocation_.nodes.push_back(*one);
    }
    try {
      write_allocation(allocation_);
    } catch (const Error& error) {  // the home is not shared: commands then use srun
      log(error.what());
    }
  }

  void end_step() {
    if (step_ <= 0) return;
    kill(step_, SIGTERM);
    for (const auto until = Clock::now() + kEndTime; waitpid(step_, &status_, WNOHANG) == 0;) {
      if (Clock::now() >= until) kill(step_, SIGKILL);
      poll(nullptr, 0, 5);
    }
    step_ = -1;
  }

  /// After the death of srun by SIGKILL, its step goes on without it.
  void cancel_steps() const {
    try {
      const auto text =
          slurm::ask({"squeue", "--noheader", "--steps", "--jobs=" + allocation_.job, "--format=%i|%j"}, environment_);
      for (const auto line : lines_of(text)) {
        const auto bar = line.find('|');
        if (bar == line.npos || line.substr(bar + 1) != kStepName) continue;
        slurm::ask({"scancel", std::string(line.substr(0, bar))}, environment_);
      }
    } catch (const Error& error) {
      log(error.what());
    }
  }

  /// A signal ended the allocation. slurmctld knows why for some minutes, and the log longer.
  void log_end() const {
    try {
      const auto text = slurm::ask({"scontrol", "show", "job", allocation_.job}, environment_, kWhyTime);
      for (const auto& job : slurm::parse_scontrol(text)) log(fmt::format("the allocation ends: {}", why_ended(job)));
    } catch (const Error& error) {
      log(error.what());
    }
  }

  Allocation allocation_;
  const Environment environment_;
  std::string list_;
  const std::string yoke_;
  const UniqueFd signals_;
  std::vector<AllocationNode> waiting_, found_;
  pid_t step_ = -1;
  int status_ = 0;
  UniqueFd out_;
  std::string received_;
};

}  // namespace

std::string handshake_id(const std::string& job) { return "alloc/" + job; }

std::string announce(const AllocationNode& node) {
  return fmt::format("{} {} {} {} {}\n", kAnnouncement, node.name, node.port, node.num_gpus, node.num_cpus);
}

std::optional<AllocationNode> parse_announcement(std::string_view line) {
  const auto words = words_of(line.substr(0, line.find('\n')));
  if (words.size() != 5 || words[0] != kAnnouncement) return std::nullopt;
  const auto port = parse_int(words[2]), gpus = parse_int(words[3]), cpus = parse_int(words[4]);
  if (!port || *port < 1 || *port > 65'535 || !gpus || !cpus) return std::nullopt;
  const std::string name(words[1]);
  return AllocationNode{name, name, static_cast<uint16_t>(*port), *gpus, *cpus};
}

int64_t gpus_by_slurm(const Environment& environment) {
  const auto text = environment.value_or("SLURM_GPUS_ON_NODE", "");
  if (const auto number = parse_int(text)) return std::max<int64_t>(0, *number);
  const auto names = environment.find("SLURM_STEP_GPUS");
  return names ? static_cast<int64_t>(split(*names, ',').size()) : 0;
}

int serve_resident(const Environment& outer, const std::string& yoke) {
  const auto secret = outer.value_or(variable::kAllocSecret, ""), job = outer.value_or("SLURM_JOB_ID", "");
  if (secret.empty() || job.empty()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "a resident agent is started by the keeper of an allocation alone; "
                "use `yoke alloc`");
  }
  auto environment = outer;
  environment.erase(variable::kAllocSecret);
  environment.erase("SLURMD_DEBUG");
  unsetenv(variable::kAllocSecret);
  launch::fail_instead_of(SIGPIPE);
  launch::NodesSpec nodes;
  nodes.token = secret;
  launch::Listener listener(nodes, handshake_id(job));
  const auto line =
      announce({.name = outer.value_or("SLURMD_NODENAME", "?"),
                .port = listener.port(),
                .num_gpus = gpus_by_slurm(outer),
                .num_cpus = outer.find_int("SLURM_CPUS_ON_NODE").value_or(device::count_cpus().num_cpus)});
  write_all(STDOUT_FILENO, line, "the keeper of the allocation");
  launch::EventLoop loop;
  const std::array<launch::EventSource*, 1> sources = {&listener};
  while (true) {
    loop.turn(sources, kResidentTurn);
    for (const auto& arrival : listener.take_arrivals()) start_agent(arrival.socket, yoke, environment);
    for (const auto& text : listener.take_complaints()) std::cerr << "yoke agent: " << text << std::endl;
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
}

int keep_allocation(const Environment& environment, const std::string& yoke) {
  const auto file = environment.value_or(variable::kAllocFile, ""), job = environment.value_or("SLURM_JOB_ID", "");
  if (!file.starts_with('/') || job.empty() || !environment.contains("SLURM_JOB_NODELIST")) {
    throw Error(ErrorCode::kFailedPrecondition, "a keeper is started by `yoke alloc` as a batch job alone");
  }
  open_log(file);
  Allocation allocation;
  allocation.job = job;
  allocation.name = environment.value_or("SLURM_JOB_NAME", "");
  if (allocation.name == slurm::kHoldingName) allocation.name.clear();
  allocation.yoke = yoke;
  allocation.cluster = environment.value_or("SLURM_CLUSTER_NAME", "");
  allocation.file = file;
  allocation.secret = new_token();
  auto inner = environment;
  inner.erase(variable::kAllocFile);
  inner.erase("SLURM_CLUSTERS");  // the cluster is this one; by its name, Slurm would look for it in the accounts
  return Keeper(std::move(allocation), inner, yoke).keep();
}

}  // namespace yoke::cluster
