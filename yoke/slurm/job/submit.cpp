#include "yoke/slurm/job/submit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <thread>

#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/slurm/job/holding.h"
#include "yoke/slurm/words/programs.h"

namespace yoke::slurm {
namespace {

/// The lines of sbatch's messages, without "sbatch: error: ".
std::vector<std::string> messages_in(std::string_view text) {
  std::vector<std::string> result;
  for (auto line : lines_of(text)) {
    for (const std::string_view prefix : {"sbatch: ", "error: ", "fatal: "}) {
      if (line.starts_with(prefix)) line.remove_prefix(prefix.size());
    }
    if (!line.empty()) result.push_back(printable(line));
  }
  return result;
}

struct RefusalAdvice {
  std::string_view said, advice;
};

// What Slurm 22.05 says, and what to do.
constexpr auto kRefusalAdvice = std::to_array<RefusalAdvice>({
    {"Invalid account", "give --account with a project of yours (`sacctmgr show associations user=$USER`)"},
    {"invalid partition specified", "give --partition with one of `sinfo -s`"},
    {"Invalid partition name", "give --partition with one of `sinfo -s`"},
    {"No partition specified", "give --partition with one of `sinfo -s`"},
    {"Invalid qos", "give --qos with one of `sacctmgr show associations user=$USER`"},
    {"Requested time limit is invalid", "give a shorter --time; `sinfo -s` lists the limits of partitions"},
    {"Node count specification invalid", "give a smaller -N; `sinfo -s` lists the nodes of partitions"},
    {"CPU count per node can not be satisfied",
     "give fewer CPUs for each node or rank; `sinfo -o '%P %c %G'` lists CPUs and GPUs"},
    {"More processors requested than permitted",
     "give a smaller -N, or fewer ranks or CPUs for each node; `sinfo -o '%P %D %c'` lists nodes and CPUs"},
    {"Invalid feature specification", "give --constraint with what `sinfo -o '%P %f'` lists"},
    {"Requested reservation is invalid", "`scontrol show reservation` lists the reservations"},
    {"Memory specification can not be satisfied", "give less --mem; `sinfo -o '%P %m'` lists the memory of nodes"},
    {"Requested node configuration is not available",
     "no node has so many GPUs, CPUs or so much memory; `sinfo -o '%P %c %m %G'` lists what nodes have"},
    {"Invalid generic resource", "the GPUs of this cluster have other names; `sinfo -o '%P %G'` lists them"},
    {"violates accounting/QOS policy", "a limit of your account forbids it; `sacctmgr show qos` lists limits"},
});

/// Runs sbatch with the script as standard input.
CommandOutput run_with_script(const std::vector<std::string>& options, const std::string& script,
                              const Environment& environment) {
  const auto in = to_descriptor(script), out = to_descriptor(""), err = to_descriptor("");
  lseek(in.value(), 0, SEEK_SET);
  std::vector<std::string> argv = {"sbatch"};
  argv.insert(argv.end(), options.begin(), options.end());
  const pid_t pid = spawn({.argv = argv,
                           .environment = environment.to_strings(),
                           .in = in.value(),
                           .out = out.value(),
                           .err = err.value(),
                           .process_group = 0,
                           .blocked_signals = BlockedSignals::kNone});  // the caller may hold signals back meanwhile
  if (pid < 0) throw system_error(errno, "starting a process for sbatch");
  CommandOutput output;
  const auto end = std::chrono::steady_clock::now() + kSubmitTime;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (!output.timed_out && std::chrono::steady_clock::now() > end) {
      output.timed_out = true;
      kill(-pid, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  output.status = shell_status(status);
  output.out = text_of(out);
  output.err = text_of(err);
  return output;
}

CommandOutput run_sbatch(const std::vector<std::string>& options, const std::string& script,
                         const Environment& environment) {
  auto output = run_with_script(options, script, environment_for_job(environment));
  if (output.status == 0 && !output.timed_out) return output;
  throw refusal_of(output);
}

}  // namespace

Environment environment_for_job(Environment environment) {
  constexpr std::array kOfRanks = {"RANK",       "LOCAL_RANK",       "WORLD_SIZE", "LOCAL_WORLD_SIZE",
                                   "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",  "ROLE_WORLD_SIZE",
                                   "ROLE_NAME",  "MASTER_ADDR",      "MASTER_PORT"};
  constexpr std::array kOfAnswers = {"SBATCH_WAIT", "SBATCH_DEBUG", "SBATCH_CLUSTERS", "SBATCH_ARRAY_INX"};
  environment = without_outer_job(std::move(environment));
  for (const auto* name : kOfRanks) environment.erase(name);
  for (const auto* name : kOfAnswers) environment.erase(name);
  environment.erase_if([](const auto& name) { return name.starts_with("TORCHELASTIC_"); });
  return environment;
}

Environment without_sbatch_variables(Environment environment) {
  environment.erase_if([](const auto& name) { return name.starts_with("SBATCH_"); });
  return environment;
}

std::optional<Submission> parse_submission(const CommandOutput& output) {
  Submission result{.job_id = "", .cluster = "", .messages = messages_in(output.err)};
  for (const auto line : lines_of(output.out)) {  // a site's plugin may print lines of its own
    const auto parts = split(line, ';');
    if (parts.empty() || !parse_int(parts[0])) {
      if (!line.empty()) result.messages.push_back(printable(line));
      continue;
    }
    result.job_id = parts[0];
    if (parts.size() > 1) result.cluster = parts[1];
  }
  if (result.job_id.empty()) return std::nullopt;
  return result;
}

Error refusal_of(const CommandOutput& output) {
  auto general = failure_of("sbatch", output, kSubmitTime);
  if (general.code() != ErrorCode::kFailedPrecondition) return general;
  const auto messages = messages_in(output.err.empty() ? output.out : output.err);
  auto text = fmt::format("sbatch refused the job: {}",
                          messages.empty() ? "it says nothing" : fmt::format("{}", fmt::join(messages, "; ")));
  for (const auto& [said, advice] : kRefusalAdvice) {
    if (output.err.find(said) == output.err.npos) continue;
    text += fmt::format("; {}", advice);
    break;
  }
  return {ErrorCode::kFailedPrecondition, text};
}

Submission submit(const std::string& script, const Environment& environment, const std::vector<std::string>& options) {
  std::vector<std::string> all = {"--parsable"};
  all.insert(all.end(), options.begin(), options.end());
  const auto output = run_sbatch(all, script, environment);
  if (auto submission = parse_submission(output)) return *std::move(submission);
  throw Error(ErrorCode::kDataLoss, "sbatch took the job but printed no job id: {}; `squeue --me` lists it",
              printable(output.out));
}

std::string test_submission(const std::string& script, const Environment& environment) {
  const auto output = run_sbatch({"--test-only"}, script, environment);
  return fmt::format("{}", fmt::join(messages_in(output.err + output.out), "; "));
}

}  // namespace yoke::slurm
