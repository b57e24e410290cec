// Rules about options that Slurm refuses together, or that need another one; and about options that are not what they
// look like.
#include <fmt/format.h>

#include <set>

#include "yoke/base/text.h"
#include "yoke/slurm/check/rules.h"
#include "yoke/slurm/words/values.h"

namespace yoke::slurm::check {
namespace {

/// Requests for a job: of a script, or of a command line. Steps are left out.
void for_each_job(const Subject& subject, const std::function<void(const Request& job)>& visit) {
  for (const auto& job : subject.script.components) {
    if (!job.has_unknown()) visit(job);
  }
}

void check_needs_another(const Subject& subject, Finder& finder) {
  for_each_job(subject, [&](const Request& job) {
    if (job.has("gpus-per-task") && !job.has_any("gpus ntasks ntasks-per-node ntasks-per-gpu")) {
      const bool is_known = job.node_range() && subject.program != kSrun && !job.counts_tasks_by_cores();
      if (!job.has("nodes")) {
        finder.add(job.line_of("gpus-per-task"),
                   "--gpus-per-task is refused without a number of tasks or nodes, and without --gpus",
                   "Add --ntasks, or --nodes with --ntasks-per-node.");
      } else if (is_known && (!job.nodes() || job.has("cpus-per-task"))) {
        finder.add(job.line_of("gpus-per-task"),
                   fmt::format("--gpus-per-task is refused without --ntasks and --gpus: {}",
                               job.nodes() ? "with --cpus-per-task, Slurm takes no number of tasks from --nodes"
                                           : "Slurm takes no number of tasks from a range of nodes"),
                   "Add --ntasks, or --ntasks-per-node.");
      }
    }
    const auto sockets = job.value("extra-node-info");
    const bool knows_sockets = job.has("sockets-per-node") || (job.has("extra-node-info") && !sockets.starts_with("*"));
    if (job.has("gpus-per-socket") && !knows_sockets) {
      finder.add(job.line_of("gpus-per-socket"), "--gpus-per-socket is refused without --sockets-per-node",
                 "Add --sockets-per-node, or ask for --gpus-per-node.");
    }
    const auto distribution = job.value("distribution");
    if (subject.program != kSrun && (distribution.starts_with("arbitrary") || distribution.starts_with("hostfile")) &&
        !job.has("nodelist") && !job.has("nodefile")) {
      finder.add(job.line_of("distribution"),
                 fmt::format("--distribution={} is refused without --nodelist, unless SLURM_HOSTFILE names a file",
                             distribution),
                 "Add --nodelist.");
    }
    const auto per_gpu = job.count("ntasks-per-gpu"), ntasks = job.count("ntasks");
    if (per_gpu && ntasks && !job.asks_for_gpus() && *ntasks > *per_gpu && *ntasks % *per_gpu != 0) {
      finder.add(
          job.line_of("ntasks-per-gpu ntasks"),
          fmt::format(
              "{} tasks are not a multiple of --ntasks-per-gpu {}, and no number of GPUs is given; the job is refused",
              *ntasks, *per_gpu),
          "Add --gpus, or a number of tasks that fits.");
    }
  });
}

void check_gpus_under_nodes(const Subject& subject, Finder& finder) {
  for_each_job(subject, [&](const Request& job) {
    const auto gpus = job.gpus("gpus");
    const auto range = job.node_range();
    if (!gpus || *gpus == 0 || !range || *gpus >= range->min) return;
    finder.add(
        job.line_of("gpus nodes"),
        fmt::format(
            "--gpus {} is less than one for each of {} nodes; Slurm says: Failed to validate job spec, --gpus < -N",
            *gpus, range->min));
  });
}

void check_nodelist(const Subject& subject, Finder& finder) {
  for_each_job(subject, [&](const Request& job) {
    const auto listed = hosts_in(job.value("nodelist"));
    const std::set<std::string> hosts(listed.begin(), listed.end());
    if (hosts.empty()) return;
    const auto range = job.node_range();
    const auto count = static_cast<int64_t>(hosts.size());
    // srun takes fewer nodes of the list instead.
    if (subject.program != kSrun && range && range->max > 0 && count > range->max) {
      finder.add(
          job.line_of("nodelist nodes"),
          fmt::format("--nodelist names {} nodes, and all of them are required, but --nodes asks for {}; {} refuses it",
                      count, job.value("nodes"), name(subject.program)),
          "Name as many nodes as are asked for, or leave --nodes out.");
    }
    for (const auto& host : hosts_in(job.value("exclude"))) {
      if (!hosts.contains(host)) continue;
      finder.add(job.line_of("nodelist exclude"),
                 fmt::format("--nodelist requires node {}, and --exclude leaves it out; the job is refused", host));
      break;
    }
  });
}

void check_array_of_components(const Subject& subject, Finder& finder) {
  if (!subject.script.is_het()) return;
  for (const auto& job : subject.script.components) {
    if (!job.has("array") || job.value("array").empty()) continue;
    finder.add(job.line_of("array"),
               "a heterogeneous job cannot be an array; Slurm says: Invalid job array specification");
    return;
  }
}

/// The release that brought a value; empty: 22.05 or an earlier one.
const char* release_of(std::string_view option, std::string_view value) {
  if (option == "nodes" && value.find_first_of(",:") != value.npos) return "24.05";
  if (option == "exclusive" && value == "topo") return "24.05";
  if (option == "exclusive" && value == "allocation") return "26.05";
  return option == "requeue" && value == "expedite" ? "25.11" : "";
}

void check_value_version(const Subject& subject, Finder& finder) {
  if (!subject.version) return;
  for_each_request(subject, [&](const Request& request, Program program, bool /*is_step*/) {
    for (const auto& given : request.options().given) {
      const auto* const since = release_of(given.spec->name, given.value);
      if (!given.is_known || *since == 0) continue;
      if (Version{subject.version->year, subject.version->month, 0} >= *parse_version(since)) continue;
      finder.add(given.line, fmt::format("{} of Slurm {} refuses {} {}, which came with {}", name(program),
                                         to_text(*subject.version), given.written, given.value, since));
    }
  });
}

void check_single_dash(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool is_step) {
    for (const auto& given : request.options().given) {
      if (given.written.size() != 2 || !given.is_known || given.value.size() < 2) continue;
      const auto equals = given.value.find('=');
      const auto whole = given.written.substr(1) + given.value.substr(0, equals);
      const auto* spec = find_option(kSbatch, whole);
      if (spec == nullptr || whole.size() < 3 || (equals == given.value.npos && spec->value == Value::kRequired))
        continue;
      const auto problem = problem_of_value(given.spec->name, given.value, is_step);
      if (problem && problem->is_refused) continue;  // bad-value says so
      const bool is_refused = given.spec->name == "partition";
      finder.add_as(is_refused ? Severity::kError : Severity::kWarning, given.line,
                    fmt::format("-{} has one dash, and is read as {} with the value {}{}", whole, given.written,
                                given.value, is_refused ? ", which is no partition" : ""),
                    fmt::format("Write --{}.", whole));
    }
  });
}

void check_short_tasks(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool /*is_step*/) {
    for (const auto& given : request.options().given) {
      if (given.spec->name != "tasks-per-node" || given.written.size() > 8) continue;
      const auto nodes = request.nodes();
      const auto range = request.node_range();
      finder.add_as(range && range->max > 1 ? Severity::kWarning : Severity::kNote, given.line,
                    fmt::format("{} is short for --tasks-per-node: {} tasks on each node{}", given.written, given.value,
                                nodes && *nodes > 1 ? fmt::format(", on {} nodes", *nodes) : ""),
                    "Write --ntasks for the number of all tasks, or --ntasks-per-node.");
    }
  });
}

constexpr Rule kConflictRules[] = {
    {"option-needs-another", Severity::kError, "", "", "An option without another one that it needs",
     "Slurm cannot tell how many tasks, sockets or nodes are meant, and refuses the job.",
     "Add the option that the message names.", kTried, check_needs_another},
    {"gpus-fewer-than-nodes", Severity::kError, "", "", "Fewer GPUs than nodes",
     "--gpus counts the GPUs of the whole job, and each node must get one.", "Ask for --gpus-per-node.", kTried,
     check_gpus_under_nodes},
    {"nodelist-conflict", Severity::kError, "", "", "--nodelist does not fit --nodes or --exclude",
     "All nodes of the list are required.", "Let the options agree.", kTried, check_nodelist},
    {"array-with-hetjob", Severity::kError, "", "", "--array for a heterogeneous job",
     "Heterogeneous jobs cannot be arrays.", "Submit several jobs.", kTried, check_array_of_components},
    {"overlap-with-exclusive", Severity::kError, "", "", "srun --overlap with --exclusive",
     "srun says: --exclusive and --overlap are mutually exclusive.", "Keep one of them.", kTried, nullptr},
    {"value-not-in-version", Severity::kError, "", "", "A value that this version does not have",
     "Some values came after 22.05. Needs --slurm or a cluster.", "Use a value that this version has.",
     "Slurm CHANGELOG 24.05 and 26.05, --exclusive; src/common/slurm_opt.c, 22.05.8 to 26.05.3", check_value_version},
    {"single-dash", Severity::kWarning, "", "", "A long option with one dash",
     "One dash and a word are a short option with its value, so that -output=x writes to utput=x.", "Write two dashes.",
     kTried, check_single_dash},
    {"tasks-shortened", Severity::kWarning, "", "", "--tasks, which means --tasks-per-node",
     "Options may be cut short, and --tasks is the beginning of --tasks-per-node alone.", "Write --ntasks.", kTried,
     check_short_tasks},
};

}  // namespace

std::span<const Rule> conflict_rules() { return kConflictRules; }

}  // namespace yoke::slurm::check
