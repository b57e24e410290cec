#include "yoke/base/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

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
  std::vector<std::string> words;
  for (const auto& word : plan.command) words.push_back(shell_word(word));
  text += fmt::format(")\ncommand=({})\n\n", fmt::join(words, " "));
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

/// The functions that tell the ranks to stop. A program that does not handle the signal would be ended by it, although
/// it may end in time by itself; and if it ended with 0 afterwards, it would be put back although it is done.
void write_stop(const ScriptPlan& plan, std::string& text) {
  const bool is_term = plan.stop_signal == "TERM";
  // scontrol names a task's first process by its number, and processes that it started by a dash.
  const std::string is_rank = plan.has_rank_tasks
                                  ? "[[ $step$task =~ ^[0-9]+$ ]]"
                                  : "[[ $step =~ ^[0-9]+$ ]] && grep -qzE '^(RANK|OMPI_COMM_WORLD_RANK|PMI_RANK)=' "
                                    "\"/proc/$pid/environ\" 2>/dev/null";
  text += fmt::format(
      "# Before the time is over, Slurm sends USR1 to this script, which passes {0} on to ranks that handle it{1}.\n"
      "handles_{0}() {{  # looks at the ranks on this node; where none is seen, they are told\n"
      "  local pid step task caught seen=''\n"
      "  while read -r pid _ step _ task; do\n"
      "    {2} || continue\n"
      "    seen=1\n"
      "    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' \"/proc/$pid/status\" 2>/dev/null)\n"
      "    if (( 16#${{caught:-0}} & {3} )); then return 0; fi\n"
      "  done < <(scontrol listpids \"$SLURM_JOB_ID\" 2>/dev/null)\n"
      "  [ -z \"$seen\" ]\n"
      "}}\n"
      "signals=0 stopped='' step_pid=''\n"
      "tell_to_stop() {{\n"
      "  signals=$((signals + 1))\n"
      "  if handles_{0}; then\n"
      "    stopped=1\n"
      "    {4} || true{5}\n"
      "  else\n"
      "    echo \"the ranks do not handle {0}, so they are not told to stop before their time is over\" >&2\n"
      "  fi\n"
      "}}\n"
      "trap tell_to_stop USR1\n",
      plan.stop_signal,
      plan.num_requeues > 0
          ? ": a training saves\n# a checkpoint and ends; the job is then put back into the queue, and "
            "goes on from the checkpoint"
          : "",
      is_rank, is_term ? "0x4000" : "0x200",
      is_term ? fmt::format("scancel --signal=TERM \"{}\"", plan.job) : "kill -USR1 \"$step_pid\" 2>/dev/null",
      is_term ? "  # srun does not pass TERM on: it would kill the step" : "");
}

}  // namespace

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
  text += "unset SLURM_EXPORT_ENV  # steps get all variables, also after sbatch --export=NONE\n";
  for (const auto& [assignment, why] : plan.exports) {
    text += fmt::format("export {}{}\n", assignment, why.empty() ? "" : "  # " + why);
  }
  for (const auto& [name, why] : plan.unset) text += fmt::format("unset {}  # {}\n", name, why);
  text += "\n";
  write_step(plan, text);

  const bool is_requeued = plan.num_requeues > 0;
  write_stop(plan, text);
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
        "if {1}scontrol show job \"{0}\" | grep ' PreemptTime=[0-9]' >/dev/null; then stopped=1; fi\n"
        "if [ -z \"$stopped\" ]; then\n"
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
