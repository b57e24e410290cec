#include "yoke/base/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/quantity.h"
#include "yoke/base/shell.h"
#include "yoke/slurm/script/plan.h"

namespace yoke::slurm {
namespace {

/// Whether `text` is one of Slurm's own forms: MM, MM:SS, H:MM:SS, D-H, D-H:MM, D-H:MM:SS.
bool is_time_of_slurm(std::string_view text) {
  const auto is_number = [](std::string_view part) {
    return !part.empty() && part.size() < 7 && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
  };
  const auto dash = text.find('-');
  if (dash != text.npos && !is_number(text.substr(0, dash))) return false;
  const auto parts = split(dash == text.npos ? text : text.substr(dash + 1), ':');
  return !parts.empty() && parts.size() <= 3 && std::ranges::all_of(parts, is_number);
}

void write_step(const ScriptPlan& plan, std::string& text) {
  for (const auto& [what, why] : plan.step_reasons) text += fmt::format("# {}: {}.\n", what, why);
  text += "step=(srun";
  for (const auto& option : plan.step) text += ' ' + shell_word(option);
  text += ")\ncommand=(";
  std::string separator;
  for (const auto& word : plan.command) {
    text += separator + shell_word(word);
    separator = " ";
  }
  text += ")\n\n";
}

/// The command that starts the step, in the background. A rank learns its place inside the step: here, in the batch
/// script, the variables of all ranks would be those of the first.
std::string start_of_step(const ScriptPlan& plan) {
  if (plan.rank_exports.empty() && plan.folders.empty()) return "\"${step[@]}\" \"${command[@]}\" &\n";
  std::string text = "\"${step[@]}\" bash -c '\n";
  if (!plan.rank_exports.empty()) {
    text += "  export";
    for (const auto& [assignment, why] : plan.rank_exports) text += ' ' + assignment;
    text += '\n';
  }
  if (!plan.folders.empty()) {
    // Anybody may have made a folder of this name in /tmp before. In one that is ours, nobody else can change anything.
    text += fmt::format(
        "  mkdir -p -m 700 \"{0}\"\n"
        "  if [ ! -O \"{0}\" ] || [ -L \"{0}\" ]; then\n"
        "    echo \"{0} on $(hostname) is a link or belongs to another user: submit the job again, under another "
        "number\" >&2\n"
        "    exit 1\n"
        "  fi\n"
        "  mkdir -p",
        plan.cache_folder);
    for (const auto& folder : plan.folders) text += fmt::format(" \"{}\"", folder);
    text += '\n';
  }
  return text + "  exec \"$@\"' rank \"${command[@]}\" &\n";
}

}  // namespace

std::string shell_word(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return word;
  return shell_quoted(word);
}

std::string slurm_time(const std::string& text) {
  if (is_time_of_slurm(text) || text == "UNLIMITED" || text == "INFINITE") return text;
  const auto length = parse_length(text);
  if (!length) {
    throw Error(ErrorCode::kInvalidArgument,
                "--time {}: give a length such as 30m, 2h or 1d12h, or Slurm's form: minutes, H:MM:SS or D-H:MM",
                printable(text));
  }
  const auto minutes = (length->count() + 59) / 60;
  const auto days = minutes / 1440, hours = minutes / 60 % 24;
  const auto rest = fmt::format("{}:{:02}:00", hours, minutes % 60);
  return days > 0 ? fmt::format("{}-{}", days, rest.size() < 8 ? '0' + rest : rest) : rest;
}

std::optional<int64_t> seconds_of_slurm_time(const std::string& text) {
  if (!is_time_of_slurm(text)) return std::nullopt;
  const auto dash = text.find('-');
  const auto days = dash == text.npos ? 0 : parse_int(text.substr(0, dash)).value_or(0);
  std::vector<int64_t> parts;
  for (const auto part :
       split(dash == text.npos ? std::string_view(text) : std::string_view(text).substr(dash + 1), ':')) {
    parts.push_back(parse_int(part).value_or(0));
  }
  // Without days: minutes, minutes:seconds, hours:minutes:seconds. With days, the first part is always hours.
  if (dash == text.npos && parts.size() < 3) parts.insert(parts.begin(), 0);
  parts.resize(3);
  return ((days * 24 + parts[0]) * 60 + parts[1]) * 60 + parts[2];
}

std::string to_script(const ScriptPlan& plan) {
  std::string text = plan.modules.empty() ? "#!/bin/bash\n" : "#!/bin/bash -l\n";
  for (const auto& line : plan.title) text += fmt::format("# {}\n", line);
  size_t width = 0;
  for (const auto& [option, why] : plan.directives) {
    if (!why.empty()) width = std::max(width, option.size());
  }
  for (const auto& [option, why] : plan.directives) {
    text += "#SBATCH " + option;
    if (!why.empty()) text += fmt::format("{}  # {}", std::string(width - option.size(), ' '), why);
    text += '\n';
  }
  text += '\n';
  for (const auto& [words, why] : plan.modules) text += fmt::format("module {}\n", words);
  if (!plan.modules.empty()) text += '\n';
  text += "set -euo pipefail\n\n# Where the ranks meet: on the first node, at a port that follows from the job.\n";
  // sed reads to the end of a long list; head would end scontrol by SIGPIPE, and so the script, by pipefail. That is
  // why there is no grep -q below, either.
  text += "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed -n 1p)";
  if (!plan.master_suffix.empty()) text += shell_word(plan.master_suffix) + "  # the name in the fast network";
  text += "\nexport MASTER_ADDR MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))\n";
  for (const auto& [assignment, why] : plan.exports) {
    text += fmt::format("export {}{}\n", assignment, why.empty() ? "" : "  # " + why);
  }
  for (const auto& [name, why] : plan.unset) text += fmt::format("unset {}  # {}\n", name, why);
  text += "\n";
  write_step(plan, text);

  const bool is_requeued = plan.num_requeues > 0;
  const bool is_term = plan.stop_signal == "TERM";
  text += fmt::format(
      "# Before the time is over, Slurm sends USR1 to this script, which passes {} on.{}\n{}"
      "signals=0 step_pid=''\n"
      "trap 'signals=$((signals + 1)); {} || true' USR1\n",
      plan.stop_signal,
      is_requeued ? " A training saves a checkpoint and\n# ends; the job is then put back into the queue, and goes on "
                    "from the checkpoint."
                  : "",
      is_term ? "# scancel does this, because srun does not pass TERM on: it would kill the step.\n" : "",
      is_term ? fmt::format("scancel --signal=TERM \"{}\"", plan.job)
              : fmt::format("kill -{} $step_pid 2>/dev/null", plan.stop_signal));
  text += start_of_step(plan);
  text +=
      "step_pid=$!\n"
      "while :; do  # a signal interrupts wait\n"
      "  before=$signals status=0\n"
      "  wait \"$step_pid\" || status=$?\n"
      "  [ \"$signals\" != \"$before\" ] || break\n"
      "done\n";
  if (!plan.cache_folder.empty()) {
    text += fmt::format(
        "srun --ntasks-per-node=1 --ntasks=\"$SLURM_NNODES\" --cpus-per-task=1 --overlap rm -rf \"{}\" || true\n",
        plan.cache_folder);
  }
  if (is_requeued) {
    text += fmt::format(
        "\n# Preemption reaches the ranks alone (SIGTERM), so this script asks whether there was one.\n"
        "stopped=$signals\n"
        "if {1}scontrol show job \"{0}\" | grep ' PreemptTime=[0-9]' >/dev/null; then stopped=1; fi\n"
        "if [ \"$stopped\" = 0 ]; then\n"
        "  exit \"$status\"\n",
        plan.job, plan.stops_with_any_status ? "" : "[ \"$status\" = 0 ] && ");
    if (!plan.stops_with_any_status) {
      text +=
          "elif [ \"$status\" != 0 ]; then\n"
          "  echo \"told to stop, the ranks failed with $status; the job is not put back into the queue\" >&2\n";
    }
    text += fmt::format(
        "elif [ \"${{SLURM_RESTART_COUNT:-0}}\" -ge {0} ]; then\n"
        "  echo \"stopped in time; the job is not put back into the queue, after {0} restarts\" >&2\n"
        "else\n"
        "  echo \"stopped in time; the job goes back into the queue (restart $((${{SLURM_RESTART_COUNT:-0}} + 1)) of "
        "{0})\"\n"
        "  scontrol requeue \"{1}\"\n"
        "  sleep 60  # Slurm ends this script meanwhile\n"
        "fi\n",
        plan.num_requeues, plan.job);
  }
  return text + "exit \"$status\"\n";
}

}  // namespace yoke::slurm
