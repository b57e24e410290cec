// Rules about how the ranks of several nodes find each other: the host, the port and the name that they must agree on.
#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/text.h"
#include "yoke/slurm/check/rules.h"

namespace yoke::slurm::check {
namespace {

bool is_torchrun(std::string_view launcher) {
  return launcher.starts_with("torchrun") || launcher.starts_with("python -m torch");
}

/// Whether a word may stand for options that are not seen: $ARGS, "${ARGS[@]}".
bool may_hold_options(const OptionWord& word) { return !word.is_known() && word.text.starts_with("$"); }

void check_no_rendezvous(const Subject& subject, Finder& finder) {
  if (subject.is_command_line) return;
  for (const auto* variable : {"PET_RDZV_ENDPOINT", "PET_MASTER_ADDR", "PET_NNODES", "PET_NODE_RANK"}) {
    if (subject.script.text.find(variable) != std::string::npos) return;
  }
  for (const auto& step : steps_of(subject)) {
    const auto words = program_words(*step.command);
    const auto launcher = launcher_of(words);
    if (!is_torchrun(launcher) || step.layout.nodes.value_or(1) < 2 || step.is_background || step.is_in_loop) continue;
    if (std::any_of(words.begin(), words.end(), may_hold_options)) continue;
    const auto is_standalone = [](const OptionWord& word) { return word.text == "--standalone"; };
    if (std::any_of(words.begin(), words.end(), is_standalone)) continue;  // has a rule of its own
    const auto line = step.command->words.front().line;
    const auto nodes = program_option(words, "nnodes");
    if (!nodes) {
      finder.add(line,
                 fmt::format("{} without --nnodes trains on each of the {} nodes alone", launcher, *step.layout.nodes));
      continue;
    }
    if (nodes->is_known() && parse_count(nodes->text) == 1) continue;  // nnodes-mismatch says so
    const auto backend = program_option(words, "rdzv-backend");
    const bool is_static = !backend || backend->text == "static";
    const bool has_endpoint = program_option(words, "rdzv-endpoint").has_value();
    if (!has_endpoint && (!is_static || !program_option(words, "master-addr"))) {
      finder.add(line,
                 fmt::format("{} on {} nodes has no --rdzv-endpoint, so each node waits for the others on itself{}",
                             launcher, *step.layout.nodes,
                             program_option(words, "master-addr") ? fmt::format(", for --master-addr is not read with "
                                                                                "--rdzv-backend={}",
                                                                                backend->text)
                                                                  : ""));
    } else if (is_static && !program_option(words, "node-rank")) {
      finder.add(line,
                 fmt::format("{} without --rdzv-backend=c10d needs --node-rank: each of the {} nodes takes itself for "
                             "node 0",
                             launcher, *step.layout.nodes));
    }
  }
}

/// The beginnings of what differs from task to task, if the batch shell does not expand it.
constexpr std::string_view kOwnHost[] = {"$(hostname",       "`hostname",         "$HOSTNAME", "${HOSTNAME",
                                         "$SLURMD_NODENAME", "${SLURMD_NODENAME", "$(uname -n"};
constexpr std::string_view kOwnNumber[] = {"$RANDOM", "${RANDOM", "$$", "$(date", "$(uuidgen", "`date", "`uuidgen"};

/// What follows `name` in `word`; empty if it is nothing of `starts` that the task expands.
template <size_t N>
std::string_view own_value(const OptionWord& word, std::string_view name, const std::string_view (&starts)[N]) {
  const auto found = word.text.find(name);
  if (found == word.text.npos) return {};
  const auto at = word.text.find_first_not_of("\"'", found + name.size());
  if (at == word.text.npos || !word.is_literal(at)) return {};
  const auto text = std::string_view(word.text).substr(at);
  const bool is_own = std::ranges::any_of(starts, [&](std::string_view start) { return text.starts_with(start); });
  return is_own ? text.substr(0, text.find_first_of(":\" ';&")) : std::string_view();
}

void check_rendezvous_per_task(const Subject& subject, Finder& finder) {
  if (subject.is_command_line) return;
  for (const auto& step : steps_of(subject)) {
    if (step.layout.nodes == 1 || step.layout.ntasks == 1 || step.is_in_loop || step.is_background) continue;
    for (const auto& word : program_words(*step.command)) {
      const std::string_view text = word.text;
      // A script that decides by its rank does more than is understood here.
      if (text.find("if ") != text.npos || text.find("[ ") != text.npos) continue;
      for (const std::string_view name : {"MASTER_ADDR=", "master-addr=", "master_addr=", "master-addr ",
                                          "master_addr ", "rdzv-endpoint=", "rdzv_endpoint=", "rdzv-endpoint ",
                                          "rdzv_endpoint ", "main_process_ip=", "main_process_ip "}) {
        const auto own = own_value(word, name, kOwnHost);
        if (own.empty()) continue;
        finder.add(
            word.line,
            fmt::format("each task makes {}{} for itself, so each node waits for the others on itself", name, own));
        break;
      }
      for (const std::string_view name : {"rdzv-id=", "rdzv_id=", "rdzv-id ", "rdzv_id ",
                                          "MASTER_PORT=", "master-port=", "master_port=", "main_process_port="}) {
        const auto own = own_value(word, name, kOwnNumber);
        if (own.empty()) continue;
        finder.add(word.line, fmt::format("each task makes {}{} for itself, so no two of them agree", name, own),
                   "Let the batch shell make it, before srun; $SLURM_JOB_ID is the same for all tasks.");
        break;
      }
    }
  }
}

/// Whether `text` is the number of the job and nothing else.
bool is_job_id(std::string_view text) {
  return text == "$SLURM_JOB_ID" || text == "${SLURM_JOB_ID}" || text == "$SLURM_JOBID" || text == "${SLURM_JOBID}";
}

void check_port_of_job(const Subject& subject, Finder& finder) {
  const auto tell = [&](int64_t line, std::string_view what, std::string_view value) {
    finder.add(line, fmt::format("{}{} is no port once the numbers of jobs have passed 65535", what, value));
  };
  for (const auto& command : subject.script.shell.commands) {
    for (const auto& assignment : command.assignments) {
      if (assignment.name == "MASTER_PORT" && !assignment.value.is_known() && is_job_id(assignment.value.text)) {
        tell(assignment.line, "MASTER_PORT=", assignment.value.text);
      }
    }
  }
  for (const auto& command : subject.script.commands) {
    const auto words = program_words(command);
    if (launcher_of(words).empty()) continue;
    for (const auto* option : {"master-port", "main-process-port", "rdzv-endpoint"}) {
      const auto given = program_option(words, option);
      if (!given || given->is_known()) continue;
      const auto colon = given->text.rfind(':');
      const auto port = std::string_view(given->text).substr(colon == std::string::npos ? 0 : colon + 1);
      if (is_job_id(port)) tell(given->line, fmt::format("--{} ", option), given->text);
    }
  }
}

void check_master_port(const Subject& subject, Finder& finder) {
  const auto& job = subject.script.job();
  if (gets_whole_nodes(subject, job) || subject.is_command_line) return;
  for (const auto& command : subject.script.shell.commands) {
    for (const auto& assignment : command.assignments) {
      if (assignment.name == "MASTER_PORT" && parse_count(assignment.value.text)) {
        finder.add(assignment.line,
                   fmt::format("MASTER_PORT={} is the same for all jobs; two of them on one node collide",
                               assignment.value.text));
      }
    }
  }
}

constexpr const char* kTorchrunSource =
    "torch/distributed/run.py, get_rdzv_endpoint and config_from_args: --master-addr is 127.0.0.1 and --node-rank 0 "
    "unless given";
constexpr const char* kEnvironmentSource =
    "torch/distributed/rendezvous.py, _env_rendezvous_handler: each rank connects to MASTER_ADDR and MASTER_PORT; "
    "run.py, get_rdzv_endpoint";

constexpr Rule kRendezvousRules[] = {
    {"launcher-without-rendezvous", Severity::kWarning, "", "", "torchrun on several nodes that do not find each other",
     "Without an endpoint, each node looks for the others on itself.",
     "Write --nnodes=$SLURM_NNODES --rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=HOST:PORT, with the "
     "first host of `scontrol show hostnames`.",
     kTorchrunSource, check_no_rendezvous},
    {"rendezvous-per-task", Severity::kWarning, "", "",
     "Each task makes its own address, port or name of the rendezvous", "All tasks must agree on it.",
     "Let the batch shell make it, before srun: MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head "
     "-n1)",
     kEnvironmentSource, check_rendezvous_per_task},
    {"port-of-job-id", Severity::kWarning, "", "", "The number of the job as a port",
     "Ports end at 65535, and numbers of jobs go to MaxJobId, 67,043,328 unless the site says otherwise.",
     "MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))",
     "Slurm src/common/read_config.h, DEFAULT_MAX_JOB_ID 0x03ff0000, 22.05.8 to 26.05.3; RFC 9293, 3.1: a port has 16 "
     "bits",
     check_port_of_job},
    {"master-port-fixed", Severity::kNote, "", "", "MASTER_PORT is a constant",
     "Other jobs on the same node may use it.", "MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))", kEnvironmentSource,
     check_master_port},
};

}  // namespace

std::span<const Rule> rendezvous_rules() { return kRendezvousRules; }

}  // namespace yoke::slurm::check
