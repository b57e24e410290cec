#include "yoke/slurm/job/verify_step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "yoke/base/command_output.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/process.h"
#include "yoke/slurm/verify/request.h"
#include "yoke/slurm/words/programs.h"

namespace yoke::slurm {
namespace {

constexpr std::chrono::seconds kStepTime{180};
constexpr size_t kMostMeasured = 16;

/// Starts a step that reads, and returns what its tasks have, ordered by rank.
std::vector<TaskSeen> read_step(const std::vector<std::string>& argv, const Environment& environment) {
  const auto output = run_quietly(argv, environment, kStepTime);
  if (output.timed_out || output.status != 0) throw step_failure(output, kStepTime);
  auto tasks = tasks_in(output.out);
  if (tasks.empty()) throw step_failure(output, kStepTime);
  return tasks;
}

/// The ranks of the findings that are measured, each once.
std::vector<int64_t> ranks_to_measure(const std::vector<VerifyFinding>& findings) {
  std::vector<int64_t> ranks;
  for (const auto& finding : findings) ranks.insert(ranks.end(), finding.ranks.begin(), finding.ranks.end());
  std::ranges::sort(ranks);
  ranks.erase(std::ranges::unique(ranks).begin(), ranks.end());
  if (ranks.size() > kMostMeasured) ranks.resize(kMostMeasured);
  return ranks;
}

std::string measured_text(const TaskSeen& task) {
  const auto& measured = *task.measured;
  auto text = fmt::format("measured: rank {} copies memory at {}/s on its {}", task.rank, format_bytes(measured.own),
                          counted(measured.num_own, "CPU"));
  if (measured.num_whole > 0) {
    text += fmt::format(", {}/s on the {} CPUs of its control group", format_bytes(measured.whole), measured.num_whole);
  }
  return text;
}

}  // namespace

std::vector<std::string> StepCommand::argv(const std::vector<int64_t>& measured) const {
  std::vector<std::string> argv = {"srun"};
  argv.insert(argv.end(), srun.begin(), srun.end());
  argv.insert(argv.end(), read.begin(), read.end());
  if (!measured.empty()) argv.push_back(fmt::format("--measure={}", fmt::join(measured, ",")));
  return argv;
}

StepReport verify_step(const StepCommand& command, const StepWish& wish, const Environment& environment) {
  if (!environment.contains("SLURM_JOB_ID")) {
    throw Error(ErrorCode::kFailedPrecondition,
                "there is no job here (SLURM_JOB_ID is not set); run this in a batch script or in the shell of "
                "salloc, or add --dry to look at the options alone");
  }
  if (!find_program("srun", environment)) {
    throw Error(ErrorCode::kNotFound, "srun is not in PATH; load the module of Slurm");
  }
  check_controller(environment);
  StepReport report{.tasks = read_step(command.argv({}), environment), .findings = {}};
  report.findings = judge(report.tasks, wish);
  const auto ranks = ranks_to_measure(report.findings);
  if (ranks.empty()) return report;
  try {
    for (const auto& seen : read_step(command.argv(ranks), environment)) {
      const auto found = std::ranges::find(report.tasks, seen.rank, &TaskSeen::rank);
      if (found != report.tasks.end()) found->measured = seen.measured;
    }
  } catch (const Error& error) {  // the findings are worth more than the measurement
    report.not_measured = error.what();
  }
  return report;
}

nlohmann::ordered_json to_json(const std::vector<VerifyFinding>& findings) {
  auto json = nlohmann::ordered_json::array();
  for (const auto& one : findings) json.push_back({{"ranks", one.ranks}, {"text", one.text}, {"advice", one.advice}});
  return json;
}

nlohmann::ordered_json to_json(const StepReport& report) {
  nlohmann::ordered_json json = {{"tasks", nlohmann::ordered_json::array()}};
  for (const auto& task : report.tasks) json["tasks"].push_back(to_json(task));
  json["findings"] = to_json(report.findings);
  json["notes"] = notes(report.tasks);
  if (!report.not_measured.empty()) json["not_measured"] = report.not_measured;
  return json;
}

std::string to_text(const std::vector<VerifyFinding>& findings) {
  std::string text;
  for (const auto& one : findings) text += fmt::format("wrong: {}\n       {}\n", one.text, one.advice);
  return text;
}

std::string notes_text(const std::vector<TaskSeen>& tasks) {
  std::string text;
  for (const auto& sentence : notes(tasks)) text += "note: " + sentence + '\n';
  return text;
}

std::string to_text(const StepReport& report, int64_t width) {
  const auto& [tasks, findings, not_measured] = report;
  auto text = to_text(to_table(tasks), width) + '\n' + to_text(findings);
  for (const auto& task : tasks) {
    if (task.measured) text += measured_text(task) + '\n';
  }
  if (!not_measured.empty()) text += "not measured: copies of memory: " + not_measured + '\n';
  text += notes_text(tasks);
  const bool has_devices = std::ranges::any_of(tasks, [](const auto& task) { return task.device() != nullptr; });
  if (has_devices && !findings.empty()) text += "not measured: copies between hosts and devices\n";
  text += findings.empty()
              ? fmt::format("verdict: right; {}\n", verdict_text(tasks))
              : fmt::format("verdict: wrong, for {}\n", counted(static_cast<int64_t>(findings.size()), "reason"));
  return text;
}

}  // namespace yoke::slurm
