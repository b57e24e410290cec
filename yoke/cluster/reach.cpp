#include "yoke/cluster/reach.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/hostlist.h"
#include "yoke/base/text.h"
#include "yoke/cluster/held.h"
#include "yoke/cluster/resident.h"
#include "yoke/cluster/ssh.h"
#include "yoke/contract/variables.h"
#include "yoke/device/process/info.h"
#include "yoke/launch/node/handshake.h"
#include "yoke/slurm/job/holding.h"

namespace yoke::cluster {
namespace {

using launch::Handshake;

/// A node in the same network answers within a millisecond.
constexpr std::chrono::milliseconds kReachTime{3000};
/// What a resident agent sends (launch/node/handshake.h): "yoke/1 head\n" and 32 random bytes, then "y" and a hash.
constexpr size_t kGreetingBytes = 12 + 32, kAnswerBytes = 1 + 32;

/// One attempt to connect: first TCP, then the greeting.
class Attempt {
 public:
  /// Resolves the node's name, which can take seconds, unless `resolve_until` has passed.
  Attempt(const AllocationNode& node, const Allocation& allocation, Clock::time_point resolve_until)
      : handshake_(Handshake::Side::kAgent, allocation.secret, handshake_id(allocation.job)) {
    if (Clock::now() >= resolve_until) {
      fail(Reached::Kind::kUnreachable, "the names of the nodes are not resolved in time");
      return;
    }
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_ADDRCONFIG;
    addrinfo* list = nullptr;
    const int error = getaddrinfo(node.address.c_str(), std::to_string(node.port).c_str(), &hints, &list);
    if (error != 0) {
      fail(Reached::Kind::kUnreachable, gai_strerror(error));
      return;
    }
    addresses_.reset(list);
    next_ = list;
    connect_to_next();
  }

  bool is_over() const { return is_over_; }
  pollfd to_poll() const { return {result_.socket.value(), static_cast<short>(is_connected_ ? POLLIN : POLLOUT), 0}; }

  void proceed() {
    if (!is_connected_) {
      int error = 0;
      socklen_t size = sizeof error;
      getsockopt(result_.socket.value(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) return fail_by(error);
      is_connected_ = true;
      return;
    }
    // No byte beyond the greeting may be taken, because the agent's first message can follow at once.
    char buffer[kGreetingBytes + kAnswerBytes];
    const auto limit = num_received_ < kGreetingBytes ? kGreetingBytes : kGreetingBytes + kAnswerBytes;
    const auto count = recv(result_.socket.value(), buffer, limit - num_received_, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return fail(Reached::Kind::kRefused, "what listens there closed the connection");
    num_received_ += static_cast<size_t>(count);
    received_.append(buffer, static_cast<size_t>(count));
    std::string to_send;
    handshake_.feed(received_, to_send);
    // A few hundred bytes fit into the buffer of a new socket.
    if (send(result_.socket.value(), to_send.data(), to_send.size(), MSG_NOSIGNAL) < 0) return fail_by(errno);
    if (handshake_.state() == Handshake::State::kTalking) return;
    if (handshake_.state() == Handshake::State::kRefused) {
      return fail(Reached::Kind::kRefused, "what listens there does not know the secret of the allocation");
    }
    result_.kind = Reached::Kind::kConnected;
    is_over_ = true;
  }

  Reached take() {
    if (!is_over_)
      fail(Reached::Kind::kUnreachable,
           is_connected_ ? "it accepts connections, but sends nothing" : "it does not answer");
    return std::move(result_);
  }

 private:
  void connect_to_next() {
    const auto& address = *std::exchange(next_, next_->ai_next);
    result_.socket =
        UniqueFd(socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
    if (!result_.socket) return fail_by(errno);
    const int on = 1;
    setsockopt(result_.socket.value(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(result_.socket.value(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS)
      fail_by(errno);
  }

  void fail_by(int error) {
    if (!is_connected_ && next_ != nullptr) return connect_to_next();
    const bool is_refused = error == ECONNREFUSED || error == ECONNRESET || error == EPIPE;
    fail(is_refused ? Reached::Kind::kRefused : Reached::Kind::kUnreachable, std::generic_category().message(error));
  }

  void fail(Reached::Kind kind, std::string why) {
    result_.kind = kind;
    result_.why = std::move(why);
    result_.socket.reset();
    is_over_ = true;
  }

  Handshake handshake_;
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses_{nullptr, freeaddrinfo};
  const addrinfo* next_ = nullptr;  ///< The address to try if this one cannot be reached.
  Reached result_;
  std::string received_;
  size_t num_received_ = 0;
  bool is_connected_ = false, is_over_ = false;
};

Error has_ended(const Allocation& allocation, const std::optional<slurm::Job>& job, const Environment& environment) {
  if (!allocation.file.empty()) end_allocation(allocation);
  return {ErrorCode::kNotFound, fmt::format("allocation {} has ended: {}{}", allocation.job,
                                            job ? why_ended(*job, environment) : "Slurm does not know it any more",
                                            kept_log_text(allocation.job, environment))};
}

/// Asks Slurm about an allocation that no node tells of. Returns its nodes, for srun.
void use_srun(Allocation& allocation, const Environment& environment) {
  check_cluster(allocation, environment);
  const auto job = slurm::find_job(allocation.job, environment);
  if (!job) {
    if (!allocation.file.empty()) throw has_ended(allocation, job, environment);
    throw Error(ErrorCode::kNotFound, "you hold no allocation {}, and Slurm knows no such job; see `yoke alloc --list`",
                allocation.job);
  }
  const auto user = device::user_name(geteuid());
  if (allocation.file.empty() && job->user != user) {
    throw Error(ErrorCode::kPermissionDenied, "job {} belongs to {}; only that user can start programs in it",
                allocation.job, printable(job->user));
  }
  const auto phase = phase_of(*job);
  if (phase == slurm::Phase::kWaiting) {
    throw Error(ErrorCode::kUnavailable, "allocation {} has not started: {}", allocation.job,
                slurm::why_waiting(job->reason));
  }
  if (phase != slurm::Phase::kHeld) throw has_ended(allocation, job, environment);
  allocation.nodes.clear();
  for (const auto& name : expand_hostlist(job->node_list)) allocation.nodes.push_back({.name = name, .address = name});
  allocation.until = end_of(*job);
}

Allocation ready(Allocation allocation, const Environment& environment) {
  if (!allocation.is_ready()) use_srun(allocation, environment);
  return allocation;
}

/// The standard streams of the agent that a resident agent has started for this connection.
launch::AgentProcess to_agent(UniqueFd socket) {
  UniqueFd other(fcntl(socket.value(), F_DUPFD_CLOEXEC, 3));
  if (!other) throw system_error(errno, "duplicating a connection");
  return {std::move(socket), std::move(other), UniqueFd(), -1};
}

/// Returns the nodes as hosts of a job. `reached` are connections for their first agents; further ones are made when
/// they are needed. With kSrun, `reached` is not used.
std::vector<launch::Host> to_hosts(const Allocation& allocation, std::vector<Reached> reached, Transport transport) {
  std::vector<launch::Host> hosts;
  for (size_t i = 0; i < allocation.nodes.size(); ++i) {
    const auto& node = allocation.nodes[i];
    launch::Host host{.name = node.name, .num_ranks = std::nullopt, .start_agent = {}};
    if (transport == Transport::kSrun) {
      host.start_agent = [argv = srun_agent_command(allocation, node.name), name = node.name] {
        // srun would take the variables of an outer job for options; SLURM_LABELIO would even change what agents say.
        return start_by_command(argv, name, slurm::without_outer_job(Environment::of_process()).to_strings());
      };
    } else {
      auto first = std::make_shared<Reached>(std::move(reached[i]));
      host.start_agent = [allocation, node, first] {
        // A node that has not answered a moment ago is not waited for again at once, because others wait meanwhile.
        if (!first->socket && first->why.empty()) *first = std::move(reach(allocation, {node}).front());
        if (!first->socket) {
          throw Error(ErrorCode::kUnavailable, "node {} of allocation {} cannot be reached: {}", node.name,
                      allocation.job, std::exchange(first->why, ""));
        }
        return to_agent(std::move(first->socket));
      };
    }
    hosts.push_back(std::move(host));
  }
  return hosts;
}

}  // namespace

std::vector<Reached> reach(const Allocation& allocation, const std::vector<AllocationNode>& nodes) {
  const auto resolve_until = Clock::now() + kReachTime;
  std::vector<Attempt> attempts;
  attempts.reserve(nodes.size());
  for (const auto& node : nodes) attempts.emplace_back(node, allocation, resolve_until);
  const auto until = Clock::now() + kReachTime;
  while (true) {
    std::vector<pollfd> polls;
    std::vector<Attempt*> waiting;
    for (auto& attempt : attempts) {
      if (attempt.is_over()) continue;
      polls.push_back(attempt.to_poll());
      waiting.push_back(&attempt);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (waiting.empty() || left <= 0) break;
    poll(polls.data(), polls.size(), static_cast<int>(left));
    for (size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].revents != 0) waiting[i]->proceed();
    }
  }
  std::vector<Reached> result;
  result.reserve(attempts.size());
  for (auto& attempt : attempts) result.push_back(attempt.take());
  return result;
}

std::vector<std::string> srun_in_job(const std::string& job, const std::string& node) {
  // --overlap: beside the step of the resident agents, which has everything. --mem=0: the memory of the job.
  return {"srun",    "--jobid=" + job,     "--overlap",       "--nodes=1", "--ntasks=1",
          "--quiet", "--nodelist=" + node, "--cpu-bind=none", "--mem=0"};
}

std::vector<std::string> srun_agent_command(const Allocation& allocation, const std::string& node) {
  auto words = srun_in_job(allocation.job, node);
  // Without --unbuffered, srun passes on whole lines alone.
  const auto found = std::ranges::find(allocation.nodes, node, &AllocationNode::name);
  const auto address = found == allocation.nodes.end() ? node : found->address;
  words.insert(words.end(), {"--unbuffered", "env", fmt::format("{}={}", variable::kNodeAddress, address),
                             allocation.yoke, "agent"});
  return words;
}

Allocation find_allocation(const std::string& name, const std::string& yoke, const Environment& environment) {
  if (name.starts_with('-')) {  // programs of Slurm would take it for an option
    throw Error(ErrorCode::kInvalidArgument, "--in {}: give a job's id, the name of an allocation, or `last`",
                printable(name));
  }
  Allocation allocation;
  try {
    allocation = choose_held(name, environment);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound || !parse_int(name)) throw;
    allocation.job = name;
    allocation.yoke = yoke;
  }
  return ready(std::move(allocation), environment);
}

OpenAllocation open_allocation(const std::string& name, const std::string& yoke, const Environment& environment) {
  OpenAllocation result{.allocation = find_allocation(name, yoke, environment), .transport = Transport::kSrun};
  auto& allocation = result.allocation;
  if (std::ranges::any_of(allocation.nodes, [](const auto& node) { return node.port == 0; })) return result;
  result.reached = reach(allocation, allocation.nodes);
  const auto is_connected = [](const Reached& one) { return one.kind == Reached::Kind::kConnected; };
  if (std::ranges::any_of(result.reached, is_connected)) {
    result.transport = Transport::kResident;
    return result;
  }
  const auto why = result.reached.front().why;
  try {
    use_srun(allocation, environment);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) throw;
    throw Error(error.code(), "the nodes of allocation {} do not answer ({}), and {}", allocation.job, why,
                error.what());
  }
  result.note = fmt::format(
      "the agents in allocation {} cannot be reached from here ({}), so srun starts programs, which is slower",
      allocation.job, why);
  return result;
}

std::vector<launch::Host> OpenAllocation::take_hosts(const std::vector<std::string>& names) {
  auto hosts = to_hosts(allocation, std::move(reached), transport);
  if (names.empty()) return hosts;
  std::vector<launch::Host> chosen;
  for (const auto& name : names) {
    check_node(allocation, name);
    chosen.push_back(*std::ranges::find(hosts, name, &launch::Host::name));
  }
  return chosen;
}

}  // namespace yoke::cluster
