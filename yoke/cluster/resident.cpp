#include "yoke/cluster/resident.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <iostream>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/contract/variables.h"
#include "yoke/launch/node/rendezvous.h"
#include "yoke/launch/process/signals.h"

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
  char text[NI_MAXHOST] = "";
  if (getsockname(socket, generic, &size) != 0) return "";
  getnameinfo(generic, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  const std::string_view mapped = "::ffff:";  // an IPv4 client of an IPv6 socket
  const std::string address_text = std::string_view(text).starts_with(mapped) ? text + mapped.size() : text;
  const bool is_loopback = address_text.starts_with("127.") || address_text == "::1";
  return is_loopback ? environment.value_or("SLURMD_NODENAME", address_text) : address_text;
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
  if (pid < 0) std::cerr << fmt::format("yoke agent: starting {}: {}\n", yoke, strerrordesc_np(errno)) << std::flush;
}

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
  cpu_set_t cpus;
  const bool has_cpus = sched_getaffinity(0, sizeof cpus, &cpus) == 0;
  const auto line =
      announce({.name = outer.value_or("SLURMD_NODENAME", "?"),
                .port = listener.port(),
                .num_gpus = gpus_by_slurm(outer),
                .num_cpus = outer.find_int("SLURM_CPUS_ON_NODE").value_or(has_cpus ? CPU_COUNT(&cpus) : 0)});
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

}  // namespace yoke::cluster
