#include "yoke/slurm/check/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "yoke/base/error.h"
#include "yoke/base/hostlist.h"
#include "yoke/base/text.h"

namespace yoke::slurm::check {
namespace {

enum class Holds { kNo, kPerhaps, kYes };

Holds holds(const Rule& rule, const std::optional<Version>& version) {
  const auto since = parse_version(rule.since), until = parse_version(rule.until);
  if (!version) return since || until ? Holds::kPerhaps : Holds::kYes;
  if (since && *version < *since) return Holds::kNo;
  // "24.11.0" ends within a release, and "24.11" includes all of it.
  const bool has_patch = std::count(rule.until, rule.until + std::string_view(rule.until).size(), '.') == 2;
  if (until && *version > *until && (has_patch || to_text(*version) != to_text(*until))) return Holds::kNo;
  return Holds::kYes;
}

Severity lowered(Severity severity) { return severity == Severity::kError ? Severity::kWarning : Severity::kNote; }

}  // namespace

std::string_view name(Severity severity) {
  return severity == Severity::kError ? "error" : severity == Severity::kWarning ? "warning" : "note";
}

std::vector<Rule> all_rules() {
  std::vector<Rule> result;
  for (const auto rules : {text_rules(), directive_rules(), value_rules(), request_rules(), gpu_request_rules(),
                           conflict_rules(), gpu_rules(), step_rules(), signal_rules(), launch_rules(),
                           rendezvous_rules(), file_rules(), binding_rules(), environment_rules(), limit_rules()}) {
    result.insert(result.end(), rules.begin(), rules.end());
  }
  return result;
}

const Rule* find_rule(std::string_view id) {
  static const auto kRules = all_rules();
  const auto found = std::ranges::find_if(kRules, [&](const Rule& rule) { return rule.id == id; });
  return found == kRules.end() ? nullptr : &*found;
}

std::string versions_of(const Rule& rule) {
  const std::string since = *rule.since == 0 ? "22.05" : rule.since, until = *rule.until == 0 ? "26.05" : rule.until;
  return since == until ? since : fmt::format("{} to {}", since, until);
}

std::vector<Finding> check(const Subject& subject) {
  std::vector<Finding> findings;
  const bool is_binary = subject.script.text.find('\0') != std::string::npos;
  for (const auto& rule : all_rules()) {
    // What is not text has no lines to speak of.
    if (is_binary && std::string_view(rule.id) != "nul-byte") continue;
    const auto answer = holds(rule, subject.version);
    if (answer == Holds::kNo) continue;
    Finder finder;
    rule.check != nullptr ? rule.check(subject, finder) : find_exclusions(rule.id, subject, finder);
    for (const auto& hit : finder.hits()) {
      const auto severity = hit.severity.value_or(rule.severity);
      findings.push_back({.line = hit.line,
                          .rule = rule.id,
                          .severity = answer == Holds::kPerhaps ? lowered(severity) : severity,
                          .message = hit.message,
                          .fix = hit.fix.empty() ? rule.fix : hit.fix,
                          .source = rule.source,
                          .slurm = versions_of(rule),
                          .edits = hit.edits});
    }
  }
  std::ranges::stable_sort(findings, [](const Finding& a, const Finding& b) { return a.line < b.line; });
  return findings;
}

void for_each_request(const Subject& subject, const std::function<void(const Request&, Program, bool)>& visit) {
  for (const auto& component : subject.script.components) visit(component, subject.program, false);
  if (subject.is_command_line) return;
  for (const auto& command : subject.script.commands) {
    if (command.name == "srun") visit(Request(command.options), kSrun, true);
  }
}

std::vector<Step> steps_of(const Subject& subject) {
  std::vector<Step> result;
  if (subject.script.is_het() || subject.is_command_line) return result;
  const auto job = layout_of(subject.script.job());
  for (const auto& command : subject.script.commands) {
    if (command.name != "srun" || command.is_het) continue;
    Step step{&command, Request(command.options), {}, false, false};
    if (step.request.has("jobid") || step.request.has("het-group")) continue;  // elsewhere
    step.layout = subject.script.job().has_unknown() ? Layout{} : layout_of(step.request, job);
    step.is_background = command.shell != nullptr && command.shell->is_background;
    step.is_in_loop = command.shell != nullptr && command.shell->is_in_loop;
    result.push_back(std::move(step));
  }
  return result;
}

std::vector<OptionWord> program_words(const Command& command) {
  const auto begin = std::min(command.program_at, command.words.size());
  return {command.words.begin() + static_cast<std::ptrdiff_t>(begin), command.words.end()};
}

std::optional<OptionWord> program_option(const std::vector<OptionWord>& words, std::string_view name) {
  for (size_t i = 0; i < words.size(); ++i) {
    const auto& text = words[i].text;
    const auto begin = text.find_first_not_of('-'), equals = text.find('=');
    if (begin == 0 || begin >= equals) continue;
    auto option = text.substr(begin, equals - begin);
    std::ranges::replace(option, '_', '-');
    if (option != name) continue;
    if (equals == text.npos && i + 1 < words.size()) return words[i + 1];
    if (equals == text.npos) continue;
    auto value = words[i];
    value.drop_front(equals + 1);
    return value;
  }
  return std::nullopt;
}

std::string launcher_of(const std::vector<OptionWord>& words) {
  for (size_t i = 0; i < words.size() && i < 60; ++i) {
    const auto base = base_name(words[i].text);
    if (base == "torchrun" || base == "torchrun_jsc" || base == "deepspeed") return std::string(base);
    if (base == "accelerate" && i + 1 < words.size() && words[i + 1].text == "launch") return "accelerate launch";
    if (base == "yoke" && i + 1 < words.size() && words[i + 1].text == "run") return "yoke run";
    if (base == "-m" && i + 1 < words.size()) {
      const auto& module = words[i + 1].text;
      if (module == "torch.distributed.run" || module == "torch.distributed.launch" || module == "torchrun_jsc") {
        return "python -m " + module;
      }
      if (module == "accelerate.commands.launch") return "accelerate launch";
    }
  }
  return "";
}

bool is_small_program(const std::vector<OptionWord>& words) {
  constexpr std::string_view kNames = "rm mkdir cp mv ls cat echo true date touch hostname nvidia-smi rocm-smi";
  return !words.empty() && has_word(kNames, base_name(words.front().text));
}

std::vector<std::string> hosts_in(const std::string& list) {
  if (list.empty() || list.find_first_of("/$") != list.npos) return {};
  try {
    return expand_hostlist(list);
  } catch (const Error&) {
    return {};
  }
}

KnownPartition partition_of(const Subject& subject, const Request& job) {
  const auto wanted = job.value("partition");
  if (job.has("clusters") || (job.has("partition") && wanted.empty())) return {};
  for (const auto* site : {subject.site, built_in_facts(wanted, job.value("account"))}) {
    if (site == nullptr) continue;
    for (const auto& [name, partition] : site->partitions) {
      if (wanted.empty() ? partition.is_default : name == wanted) return {site, &partition, name};
    }
  }
  return {};
}

bool gets_whole_nodes(const Subject& subject, const Request& job) {
  const auto* partition = partition_of(subject, job).partition;
  if (partition != nullptr && partition->is_whole_node) return true;
  const auto value = job.value("exclusive");  // with these two, other jobs may be on the nodes
  return job.has("exclusive") && value != "user" && value != "mcs";
}

bool mentions_variable(const OptionWord& word, std::string_view name) {
  for (auto at = word.text.find(name); at != word.text.npos; at = word.text.find(name, at + 1)) {
    const auto before = std::string_view(word.text).substr(0, at);
    const auto end = at + name.size();
    const bool is_whole = end >= word.text.size() ||
                          (std::isalnum(static_cast<unsigned char>(word.text[end])) == 0 && word.text[end] != '_');
    if (is_whole && (before.ends_with('$') || before.ends_with("${")) && !word.is_literal(at)) return true;
  }
  return false;
}

bool is_work(const Command& command) {
  constexpr std::string_view kNames =
      "srun mpirun mpiexec mpiexec.hydra prterun prun torchrun accelerate deepspeed julia Rscript matlab java "
      "horovodrun";
  if (command.words.empty()) return false;
  const auto& first = command.words.front().text;
  const bool is_local = (first.starts_with("./") || first.starts_with("../")) && !first.ends_with(".sh");
  return has_word(kNames, command.name) || command.name.starts_with("python") || is_local ||
         !launcher_of(command.words).empty();
}

std::vector<Assignment> assignments_of(const Script& script) {
  std::vector<Assignment> result;
  for (const auto& command : script.shell.commands) {
    result.insert(result.end(), command.assignments.begin(), command.assignments.end());
  }
  return result;
}

bool assigns(const Script& script, std::string_view name) {
  const auto& assigned = script.shell.assigned;
  return std::ranges::find(assigned, name) != assigned.end();
}

}  // namespace yoke::slurm::check
