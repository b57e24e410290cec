// `yoke agent`: runs the ranks of a job on one host. `yoke run --hosts` starts it on each host, and they exchange the
// messages of launch/node/wire.h over its standard input and output. Help does not list it.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/cli/command.h"
#include "yoke/cluster/exec.h"
#include "yoke/cluster/resident.h"
#include "yoke/launch/node/channel.h"
#include "yoke/launch/node/node.h"
#include "yoke/launch/node/wire.h"
#include "yoke/launch/process/signals.h"

namespace yoke::cli {
namespace {

constexpr std::chrono::seconds kFirstSilence{30};
constexpr std::chrono::seconds kFarewell{1};

/// Returns a channel on standard input and output. Anything that this process prints later goes to standard error.
launch::Channel take_standard_streams() {
  UniqueFd in(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)), out(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!in || !out) throw system_error(errno, "duplicating standard input and output");
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  dup2(null.value(), STDIN_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  for (const int fd : {out.value(), STDERR_FILENO}) {
    write_all(fd, launch::kAgentPreamble, "the head node");
  }
  return {std::move(in), std::move(out), kFirstSilence};
}

/// Returns the environment of the job's command, and sets its variables in this process too, because execvpe() searches
/// the PATH of the process that calls it.
Environment take_environment(const nlohmann::json& variables) {
  for (const auto& [name, value] : variables.items()) {
    setenv(name.c_str(), value.get_ref<const std::string&>().c_str(), 1);
  }
  return Environment::of_process();
}

int serve(Context& context) {
  launch::fail_instead_of(SIGPIPE);
  auto channel = take_standard_streams();
  try {
    const auto message = launch::receive_request(channel);  // {launch} or {exec}
    const bool is_exec = message.contains("exec");
    const auto& launch = message.at(is_exec ? "exec" : "launch");
    channel.set_silence(std::chrono::milliseconds(launch.at("silence_ms").get<int64_t>()));
    const std::string folder = launch.at("folder");
    if (chdir(folder.c_str()) != 0) throw system_error(errno, fmt::format("entering the folder {}", folder));
    if (is_exec) {
      take_environment(launch.at("environment"));
      return cluster::serve_exec(channel, launch.at("argv").get<std::vector<std::string>>());
    }
    AgentRole role{channel, std::nullopt, launch.at("on_a_terminal").get<bool>()};
    if (const auto number = launch.find("num_ranks"); number != launch.end()) role.num_ranks = number->get<int64_t>();
    if (launch.value("ranks_by_slurm", false)) {
      role.num_ranks = std::max<int64_t>(1, cluster::gpus_by_slurm(context.environment));
    }
    Context command{context.out, take_environment(launch.at("environment")), context.installation, {}};
    command.agent = &role;
    return run_command_line(launch.at("words").get<std::vector<std::string>>(), command);
  } catch (const Error& error) {
    channel.send({{"event", to_json(launch::NodeEvent{.kind = launch::NodeEvent::Kind::kRefused,
                                                      .value = exit_status(error.code()),
                                                      .text = error.what()})}});
    channel.flush(kFarewell);
    return exit_status(error.code());
  }
}

}  // namespace

void add_agent(CLI::App& cmd, Context& context) {
  struct AgentArgs {
    bool keep = false, resident = false;
  };
  auto args = std::make_shared<AgentArgs>();  // CLI11 keeps references to it; the callback owns it
  cmd.add_flag("--keep", args->keep, "Hold an allocation of Slurm; `yoke alloc` submits it as a batch job");
  cmd.add_flag("--resident", args->resident, "Stay on a node of an allocation, and start agents for its owner");
  cmd.callback([args, &context] {
    const auto yoke = context.installation.executable.string();
    context.exit_code = args->keep       ? cluster::keep_allocation(context.environment, yoke)
                        : args->resident ? cluster::serve_resident(context.environment, yoke)
                                         : serve(context);
  });
}

}  // namespace yoke::cli
