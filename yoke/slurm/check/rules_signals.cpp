// Rules about signals that Slurm sends, and about jobs that put themselves back into the queue.
#include <fmt/format.h>

#include <algorithm>

#include "yoke/slurm/check/rules.h"

namespace yoke::slurm::check {
namespace {

const Command* find_trap(const Script& script, std::string& signal) {
  for (const auto& command : script.commands) {
    if (command.name != "trap" || command.words.size() < 3 || command.words[1].text == "-") continue;
    for (size_t i = 2; i < command.words.size(); ++i) {
      auto name = command.words[i].text;
      if (name.starts_with("SIG")) name = name.substr(3);
      if (has_word("EXIT ERR DEBUG 0 RETURN", name)) continue;
      signal = name;
      return &command;
    }
  }
  return nullptr;
}

std::string signal_of(const std::string& value) {
  auto name = value.substr(0, value.find('@'));
  if (const auto colon = name.rfind(':'); colon != name.npos) name = name.substr(colon + 1);
  if (name.starts_with("SIG")) name = name.substr(3);
  static constexpr std::pair<const char*, const char*> kNumbers[] = {
      {"10", "USR1"}, {"12", "USR2"}, {"15", "TERM"}, {"2", "INT"}, {"1", "HUP"}};
  for (const auto& [number, word] : kNumbers) {
    if (name == number) return word;
  }
  return name;
}

/// The flags of --signal, such as B and R.
std::string flags_of(const std::string& value) {
  return value.substr(0, value.rfind(':') == value.npos ? 0 : value.rfind(':'));
}

void check_signal_shell(const Subject& subject, Finder& finder) {
  const auto value = subject.script.job().value("signal");
  std::string trapped;
  const auto* trap = find_trap(subject.script, trapped);
  if (value.empty() || trap == nullptr || signal_of(value) != signal_of(trapped)) return;
  if (flags_of(value).find('B') != std::string::npos) return;
  finder.add(subject.script.job().line_of("signal"),
             fmt::format(
                 "--signal={} goes to the steps alone; the trap for {} on line {} is in the batch shell and never runs",
                 value, trapped, trap->words[0].line),
             fmt::format("Write --signal=B:{}.", value));
}

void check_trap_waits(const Subject& subject, Finder& finder) {
  const auto value = subject.script.job().value("signal");
  std::string trapped;
  const auto* trap = find_trap(subject.script, trapped);
  if (!value.starts_with("B") || trap == nullptr || signal_of(value) != signal_of(trapped)) return;
  bool has_wait = false;
  const Command* blocking = nullptr;
  for (const auto& command : subject.script.commands) {
    if (command.name == "wait" || command.name == "fg") has_wait = true;
    const bool is_long_sleep = command.name == "sleep" && command.words.size() == 2 && !command.shell->is_in_loop &&
                               parse_count(command.words[1].text).value_or(0) >= 60;
    if ((is_work(command) || is_long_sleep) && !command.shell->is_background && !command.shell->is_in_substitution &&
        command.words[0].line > trap->words[0].line) {
      blocking = &command;
    }
  }
  if (has_wait || blocking == nullptr) return;
  finder.add(blocking->words[0].line,
             fmt::format("bash runs the trap for {} when {} has ended, which is too late", trapped, blocking->name),
             fmt::format("Start {} with & and write `wait` after it.", blocking->name));
}

/// Whether the script sets a trap for `signal`, also as one of several.
bool has_trap_for(const Script& script, const std::string& signal) {
  return std::ranges::any_of(script.commands, [&](const Command& command) {
    return command.name == "trap" && command.words.size() > 2 &&
           std::any_of(command.words.begin() + 2, command.words.end(),
                       [&](const OptionWord& word) { return !word.is_known() || signal_of(word.text) == signal; });
  });
}

/// Whether a sourced file or an evaluated text only prepares the environment, as those of conda and venv do.
bool prepares_environment(const ShellCommand& command) {
  const auto& text = command.words.size() > 1 ? command.words[1].text : command.words[0].text;
  for (const auto* part :
       {"activate", "conda", "mamba", "bashrc", "profile", "modules", "lmod", "spack", "pixi", "env"}) {
    if (text.find(part) != std::string::npos) return true;
  }
  return false;
}

/// Whether something that is not seen here may set a trap or start steps: another script, or a program that replaces
/// the shell.
bool hides_something(const Script& script) {
  return !script.is_shell || std::ranges::any_of(script.shell.commands, [](const ShellCommand& command) {
    const auto name = command.name();
    if (name == "exec") return command.words.size() > 1;
    return (name == "source" || name == "." || name == "eval") && !prepares_environment(command);
  });
}

void check_signal_kills(const Subject& subject, Finder& finder) {
  const auto value = subject.script.job().value("signal");
  if (subject.is_command_line || flags_of(value).find('B') == std::string::npos || hides_something(subject.script))
    return;
  const auto signal = signal_of(value);
  if (!has_word("USR1 USR2 HUP INT TERM QUIT ALRM", signal) || has_trap_for(subject.script, signal)) return;
  // Somebody may want to end the job early.
  const bool is_usual_end = signal == "TERM" || signal == "INT";
  finder.add_as(is_usual_end ? Severity::kNote : Severity::kWarning, subject.script.job().line_of("signal"),
                fmt::format("--signal={} kills the batch shell, and with it the job, because the script has no trap "
                            "for {}; its programs do not get the signal",
                            value, signal),
                fmt::format("Leave B: out if steps of srun handle {}; or set a trap that hands it on.", signal));
}

void check_signal_unheard(const Subject& subject, Finder& finder) {
  const auto& script = subject.script;
  const auto value = script.job().value("signal");
  if (subject.is_command_line || value.empty() || flags_of(value).find('B') != std::string::npos) return;
  if (hides_something(script) || has_trap_for(script, signal_of(value))) return;
  const Command* work = nullptr;
  for (const auto& command : script.commands) {
    if (is_work(command) && work == nullptr) work = &command;
    const bool may_start_steps = command.name == "bash" || command.name == "sh" || command.name == "make" ||
                                 command.name.ends_with(".sh") || !command.words.front().is_known();
    if (may_start_steps) return;
  }
  if (work == nullptr) return;
  for (size_t i = 0; i < script.lines.size(); ++i) {
    const auto begin = script.lines[i].find_first_not_of(" \t");
    if (begin == std::string::npos || script.lines[i][begin] == '#') continue;
    for (const auto* starter : {"srun", "mpirun", "mpiexec", "prun", "ibrun", "aprun", "prterun"}) {
      if (script.lines[i].find(starter) != std::string::npos) return;
    }
  }
  finder.add(script.job().line_of("signal"),
             fmt::format("--signal={} goes to steps, and nothing in the script is started by srun: neither {} nor the "
                         "batch shell gets it",
                         value, work->words.front().text),
             fmt::format("Start {} with srun.", work->words.front().text));
}

void check_requeue_call(const Subject& subject, Finder& finder) {
  const auto& job = subject.script.job();
  if (subject.is_command_line || !subject.script.is_shell) return;
  for (size_t i = 0; i < subject.script.lines.size(); ++i) {
    const auto& line = subject.script.lines[i];
    const auto begin = line.find_first_not_of(" \t"), at = line.find("scontrol requeue");
    if (begin == line.npos || at == line.npos || line[begin] == '#' || line.find('#') < at) continue;
    if (line.substr(begin).starts_with("echo") || subject.script.is_in_text[i]) continue;
    const auto number = static_cast<int64_t>(i) + 1;
    const auto* last = job.find("requeue");
    if (job.has("no-requeue") && (last == nullptr || last->line < job.line_of("no-requeue"))) {
      finder.add(
          number,
          "scontrol refuses to requeue this job, because of --no-requeue: Requested operation is presently disabled",
          "Write #SBATCH --requeue.");
    } else if (!job.value("open-mode").starts_with("a") && job.value("output") != "/dev/null") {
      finder.add(number,
                 fmt::format("the requeued job truncates {}, and what it has printed so far is lost, unless the site "
                             "sets JobFileAppend",
                             job.value("output").empty() ? "slurm-%j.out" : job.value("output")),
                 "Add #SBATCH --open-mode=append.");
    }
    return;
  }
}

constexpr const char* kSignalSource =
    "Slurm src/slurmctld/job_mgr.c, send_job_warn_signal; src/slurmd/slurmd/req.c, _kill_all_active_steps; tried with "
    "22.05.8";

constexpr Rule kSignalRules[] = {
    {"signal-not-to-shell", Severity::kWarning, "", "", "--signal does not reach the trap",
     "Without B:, Slurm sends the signal to steps, but not to the batch shell.", "Write --signal=B:SIGNAL@SECONDS.",
     kSignalSource, check_signal_shell},
    {"trap-waits", Severity::kWarning, "", "", "A trap that waits for a program in the foreground",
     "bash runs traps between commands.", "Start the program with & and use `wait`.",
     "GNU Bash manual, 3.7.6 Signals; bash 5.2 (tests/slurm/check_test.cpp)", check_trap_waits},
    {"signal-kills-script", Severity::kWarning, "", "", "--signal=B: without a trap",
     "The signal goes to the batch shell alone, whose default is to end.", "Set a trap, or leave B: out.",
     kSignalSource, check_signal_kills},
    {"signal-unheard", Severity::kWarning, "", "", "--signal for steps, but srun starts none",
     "Without B:, the signal goes to steps, and programs of the batch script are no step.",
     "Start the program with srun.", kSignalSource, check_signal_unheard},
    {"requeue-call", Severity::kWarning, "", "", "scontrol requeue that is refused, or that loses the output",
     "--no-requeue forbids it. Without --open-mode=append, the next start truncates the output.",
     "Add #SBATCH --requeue and #SBATCH --open-mode=append.",
     "Slurm src/slurmctld/job_mgr.c, _job_requeue_op: ESLURM_DISABLED; src/slurmd/slurmstepd/io.c, io_get_file_flags; "
     "tried with 22.05.8",
     check_requeue_call},
};

}  // namespace

std::span<const Rule> signal_rules() { return kSignalRules; }

}  // namespace yoke::slurm::check
