#include "yoke/slurm/words/programs.h"

#include "yoke/base/process.h"
#include "yoke/base/text.h"

namespace yoke::slurm {
namespace {

/// The last line that says what is wrong, without hints such as `Try "srun --help"`.
std::string last_line(std::string_view text) {
  auto lines = lines_of(text);
  while (lines.size() > 1 && lines.back().starts_with("Try ")) lines.pop_back();
  return lines.empty() ? "it says nothing" : printable(lines.back());
}

}  // namespace

Error failure_of(const std::string& program, const CommandOutput& output, std::chrono::milliseconds limit) {
  const auto& said = output.err.empty() ? output.out : output.err;
  constexpr std::string_view kMayHappen = ". It may still do what was asked; `squeue --me` shows it";
  const bool is_request = program == "sbatch" || program == "scancel";
  if (output.timed_out) {
    const bool is_step = program == "srun", is_account = program == "sacct";
    return {
        ErrorCode::kTimeout,
        fmt::format("{} {} in {} s: {}{}{}", program, is_step ? "did not end" : "gave no answer", limit.count() / 1000,
                    is_step      ? "the step did not start, or hangs; `squeue --steps --me` lists steps"
                    : is_account ? "slurmdbd, which keeps the accounts of jobs, does not answer"
                                 : "slurmctld does not answer; `scontrol ping` shows whether it is up",
                    is_request ? kMayHappen : "",
                    output.err.empty() ? "" : fmt::format(". It said: {}", last_line(output.err)))};
  }
  if (output.status == 127 && said.empty()) {
    return {ErrorCode::kNotFound, fmt::format("{} is not in PATH: Slurm is not installed here, or its module is not "
                                              "loaded; try it on a login node of the cluster",
                                              program)};
  }
  if (contains_any(said, {"Munge encode failed", "munged", "Invalid authentication credential",
                          "authentication: Socket communication error"})) {
    return {ErrorCode::kUnavailable, fmt::format("{} cannot prove who you are, because munge does not run on this "
                                                 "host: {}; ask the administrator to start munged",
                                                 program, last_line(said))};
  }
  if (contains_any(said, {"Could not establish a configuration source", "Unable to establish configuration source"})) {
    return {ErrorCode::kFailedPrecondition, fmt::format("{} finds no configuration of Slurm (SLURM_CONF, /etc/slurm): "
                                                        "this host belongs to no cluster; try it on a login node",
                                                        program)};
  }
  if (contains_any(said, {"Slurm accounting storage is disabled"})) {
    return {ErrorCode::kFailedPrecondition,
            fmt::format("{}: this Slurm keeps no accounts of jobs (accounting storage is disabled)", program)};
  }
  if (contains_any(said, {"problem talking to the database"})) {
    return {
        ErrorCode::kUnavailable,
        fmt::format("{} cannot find the cluster that SLURM_CLUSTERS or -M names, because slurmdbd, which knows the "
                    "clusters, cannot be reached; unset SLURM_CLUSTERS to ask the cluster of this host. It said: {}",
                    program, last_line(said))};
  }
  if (contains_any(said, {"slurmdbd", "Unable to contact slurm accounting"})) {
    return {ErrorCode::kUnavailable,
            fmt::format("{} cannot reach slurmdbd, which keeps the accounts of jobs: {}", program, last_line(said))};
  }
  // The texts are those of Slurm's table of errors (src/common/slurm_errno.c) and of the system. With these, a request
  // may have arrived.
  const bool was_lost = contains_any(said, {"Zero Bytes were transmitted", "Socket timed out", "receive failure",
                                            "Unexpected missing socket error", "Connection reset by peer"});
  if (is_request && was_lost) {
    return {ErrorCode::kTimeout,
            fmt::format("{} lost slurmctld before its answer: {}{}", program, last_line(said), kMayHappen)};
  }
  if (was_lost || contains_any(said, {"Unable to contact slurm controller", "Connection refused",
                                      "Communication connection failure", "Communication shutdown failure",
                                      "Message send failure", "Rate limit exceeded"})) {
    return {ErrorCode::kUnavailable, fmt::format("{} cannot reach slurmctld: {}; running jobs continue, try again "
                                                 "later (`scontrol ping` shows whether it is up)",
                                                 program, last_line(said))};
  }
  return {ErrorCode::kFailedPrecondition, fmt::format("{} failed: {}", program, last_line(said))};
}

Environment query_environment(Environment environment) {
  environment.erase_if([](const auto& name) {
    return begins_with_any(name, {"SQUEUE_", "SACCT_", "SCONTROL_", "SCANCEL_", "SINFO_"});
  });
  environment.set("SLURM_TIME_FORMAT", "%s");
  environment.set("SLURM_BITSTR_LEN", "0");  // lists of tasks are cut after 64 characters otherwise
  return environment;
}

std::string ask(const std::vector<std::string>& argv, const Environment& environment, std::chrono::milliseconds limit) {
  auto output = run_quietly(argv, query_environment(environment), limit);
  if (output.status == 0 && !output.timed_out) return std::move(output.out);
  throw failure_of(std::string(base_name(argv.at(0))), output, limit);
}

void check_controller(const Environment& environment, std::chrono::milliseconds limit) {
  const auto program = find_program("scontrol", environment);
  if (!program) throw failure_of("scontrol", {.status = 127, .timed_out = false, .out = "", .err = ""}, limit);
  const auto output = run_quietly({program->native(), "ping"}, environment, limit);
  if (output.timed_out) {  // without munge each try to prove who asks takes half a minute
    throw Error(ErrorCode::kTimeout,
                "slurmctld gave no answer in {} s: it does not answer, or munge does not run on this host; `scontrol "
                "ping` and `munge -n` show which",
                limit.count() / 1000);
  }
  if (output.status == 0 || output.out.find(" is UP") != output.out.npos) return;  // a backup may be the one that is up
  if (output.err.empty() && output.out.find(" is DOWN") != output.out.npos) {
    throw Error(ErrorCode::kUnavailable,
                "slurmctld is down, so no step can start: {}; running steps continue, try again later",
                printable(output.out.substr(0, output.out.find('\n'))));
  }
  throw failure_of("scontrol", output, limit);
}

std::optional<Version> installed_version(const Environment& environment) {
  const auto program = find_program("sbatch", environment);
  if (!program) return std::nullopt;
  return parse_version(ask({program->native(), "--version"}, environment));
}

std::string_view field_of(std::string_view line, std::string_view name) {
  for (const auto word : words_of(line)) {
    if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=') {
      return word.substr(name.size() + 1);
    }
  }
  return {};
}

std::string_view setting_of(std::string_view config, std::string_view name) {
  for (const auto line : lines_of(config)) {
    const auto words = words_of(line);
    if (words.size() >= 3 && words[0] == name && words[1] == "=") return words[2];
  }
  return {};
}

std::string without_sockets(std::string_view gres) {
  std::string text;
  int depth = 0;
  for (const char c : gres) {
    if (c == '(') ++depth;
    if (depth == 0) text += c;
    if (c == ')') --depth;
  }
  return text;
}

}  // namespace yoke::slurm
