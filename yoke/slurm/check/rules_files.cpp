// Rules about what surrounds a job: directives of other schedulers, folders of logs, and calls of sbatch.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/slurm/check/rules.h"

namespace yoke::slurm::check {
namespace {

/// Lines that begin with `mark` and then have an option.
std::vector<int64_t> lines_with(const Script& script, std::string_view mark) {
  std::vector<int64_t> result;
  for (size_t i = 0; i < script.lines.size(); ++i) {
    const std::string_view line = script.lines[i];
    if (!line.starts_with(mark)) continue;
    const auto begin = line.find_first_not_of(" \t", mark.size());
    if (begin != line.npos && line[begin] == '-') result.push_back(static_cast<int64_t>(i) + 1);
  }
  return result;
}

/// sbatch looks at #BSUB first, and at #PBS only if there is none.
void check_translated(const Subject& subject, Finder& finder) {
  if (subject.is_command_line || subject.script.job().has("ignore-pbs")) return;
  for (const auto* mark : {"#BSUB", "#PBS"}) {
    const auto lines = lines_with(subject.script, mark);
    if (lines.empty()) continue;
    const bool has_own = !subject.script.directives.empty();
    finder.add(lines.front(), fmt::format("sbatch translates {} with {}, wherever they are in the script{}",
                                          counted(lines.size(), "line"), mark,
                                          has_own ? ", and they override #SBATCH"
                                                  : "; options that it does not know are lost or refused"));
    if (std::string_view(mark) == "#BSUB") {
      for (const auto line : lines) {
        const auto words = words_of(subject.script.lines[static_cast<size_t>(line - 1)]);
        for (size_t i = 1; i + 1 < words.size(); ++i) {
          if (words[i] != "-W" || std::ranges::count(words[i + 1], ':') != 1) continue;
          finder.add(
              line,
              fmt::format("sbatch reads -W {} as minutes and seconds; for LSF it is hours and minutes", words[i + 1]),
              "Write #SBATCH --time=HH:MM:00.");
        }
      }
    }
    return;
  }
}

void check_sge(const Subject& subject, Finder& finder) {
  if (subject.is_command_line) return;
  const auto lines = lines_with(subject.script, "#$");
  if (lines.empty()) return;
  finder.add(lines.front(), fmt::format("sbatch takes {} with #$ as comments: they are options of Grid Engine",
                                        counted(lines.size(), "line")));
}

std::string without_dot(std::string path) {
  while (path.starts_with("./")) path.erase(0, 2);
  while (path.size() > 1 && path.ends_with("/")) path.pop_back();
  return path;
}

/// The command of the script that makes the folder; null if there is none.
const Command* maker_of(const Script& script, const std::string& folder) {
  for (const auto& command : script.commands) {
    if (command.name != "mkdir") continue;
    const bool makes = std::any_of(command.words.begin() + 1, command.words.end(), [&](const OptionWord& word) {
      const auto path = without_dot(word.text);
      return path == folder || path.starts_with(folder + "/");
    });
    if (makes) return &command;
  }
  return nullptr;
}

/// The folder of an output of the job, as seen where sbatch is called: below that of --chdir.
std::string shown_folder(const Request& job, const std::string& folder) {
  return printable((std::filesystem::path(job.value("chdir")) / without_dot(folder)).string());
}

void check_missing_folder(const Subject& subject, Finder& finder) {
  if (!subject.missing_folder || subject.program != kSbatch) return;
  const auto& job = subject.script.job();
  if (job.has("chdir") && job.value("chdir").empty()) return;  // a variable
  for (const auto* option : {"output", "error"}) {
    const auto value = job.value(option);
    const auto folder = value.empty() ? std::nullopt : subject.missing_folder(value, job.value("chdir"));
    if (!folder || maker_of(subject.script, without_dot(*folder)) != nullptr) continue;
    const auto shown = shown_folder(job, *folder);
    finder.add(job.line_of(option),
               fmt::format("--{} {}: there is no folder {} here, and Slurm before 23.02 does not make it: the job "
                           "fails without a message and without a log",
                           option, printable(value), shown),
               fmt::format("Make the folder before sbatch: mkdir -p {}", shell_word(shown)));
  }
}

void check_late_folder(const Subject& subject, Finder& finder) {
  if (subject.is_command_line || !subject.script.is_shell) return;
  const auto& job = subject.script.job();
  for (const auto* option : {"output", "error"}) {
    const auto value = job.value(option);
    const auto slash = value.rfind('/');
    if (slash == value.npos || slash == 0) continue;
    const auto folder = without_dot(value.substr(0, slash));
    if (const auto* command = maker_of(subject.script, folder)) {
      finder.add(job.line_of(option),
                 fmt::format("mkdir on line {} comes too late for --{} {}: Slurm before 23.02 opens the file before "
                             "the script runs, and without the folder the job fails without a message",
                             command->words.front().line, option, value),
                 fmt::format("Make the folder before sbatch: mkdir -p {}", shell_word(shown_folder(job, folder))));
    }
  }
}

/// sbatch job.sh --nodes=2: options after the script are its arguments.
void check_late_options(const Subject& subject, Finder& finder) {
  for (const auto& command : subject.script.commands) {
    if (command.name != "sbatch" || command.options.has_unknown) continue;
    const auto words = program_words(command);
    if (words.size() < 2 || words.front().text.starts_with("-")) continue;
    for (size_t i = 1; i < words.size(); ++i) {
      const auto& text = words[i].text;
      if (!words[i].is_known() || !text.starts_with("--")) continue;
      const auto option = text.substr(2, text.find('=') == text.npos ? text.npos : text.find('=') - 2);
      if (find_option(kSbatch, option) == nullptr) continue;
      const bool has_value = text.find('=') == text.npos && i + 1 < words.size() && words[i + 1].is_known() &&
                             !words[i + 1].text.starts_with("-");
      const auto value = has_value ? " " + words[i + 1].text : "";
      finder.add(
          words[i].line,
          fmt::format("{} comes after the script {}, so it is an argument of the script; sbatch does not read it", text,
                      words.front().text),
          fmt::format("Write sbatch {}{} {}", text, value, words.front().text));
      break;
    }
  }
}

/// sbatch --export-file job.sh: the script became the value of an option.
void check_no_script(const Subject& subject, Finder& finder) {
  if (!subject.is_command_line || subject.program != kSbatch) return;
  for (const auto& command : subject.script.commands) {
    if (command.name != "sbatch" || command.options.given.empty() || !program_words(command).empty()) continue;
    const auto& last = command.options.given.back();
    const bool is_separate = last.has_value && command.words.back().text == last.value;
    const bool is_script = last.value.ends_with(".sh") || last.value.ends_with(".slurm") ||
                           last.value.ends_with(".sbatch") || last.value.ends_with(".job");
    if (!is_separate || !is_script) continue;
    finder.add(last.line, fmt::format("{} takes {} as its value, so sbatch has no script and reads one from its input",
                                      last.written, last.value));
  }
}

void check_missing_script(const Subject& subject, Finder& finder) {
  if (!subject.is_script_missing || subject.script.commands.empty()) return;
  const auto words = program_words(subject.script.commands.front());
  if (words.empty() || words.front().text == ":") return;  // what follows is another component of the job
  finder.add(1, fmt::format("there is no file {}; sbatch says: Unable to open file {}", words.front().text,
                            words.front().text));
}

/// sbatch --wrap=COMMAND job.sh
void check_wrap(const Subject& subject, Finder& finder) {
  for (const auto& command : subject.script.commands) {
    if (command.name != "sbatch" || command.options.has_unknown) continue;
    const auto words = program_words(command);
    const auto& given = command.options.given;
    const bool wraps =
        std::ranges::any_of(given, [](const GivenOption& option) { return option.spec->name == "wrap"; });
    if (!wraps || words.empty()) continue;
    finder.add(words.front().line,
               fmt::format("sbatch refuses {} after --wrap: Script arguments not permitted with --wrap option",
                           words.front().text));
  }
}

constexpr Rule kFileRules[] = {
    {"script-missing", Severity::kError, "", "", "The script of a command line does not exist", "sbatch refuses it.",
     "Give the path of the script, or --wrap=COMMAND.", "sbatch 22.05.8 (tests/slurm/check_test.cpp)",
     check_missing_script},
    {"pbs-directive", Severity::kWarning, "", "", "#PBS or #BSUB lines",
     "Unless --ignore-pbs is given, sbatch translates them after #SBATCH lines, so they win.",
     "Write #SBATCH lines instead, or add #SBATCH --ignore-pbs.",
     "Slurm src/sbatch/xlate.c, xlate_batch_script, 22.05.8 to 26.05.3; sbatch 22.05.8 (tests/slurm/check_test.cpp)",
     check_translated},
    {"sge-directive", Severity::kWarning, "", "", "#$ lines of Grid Engine", "sbatch does not read them.",
     "Write #SBATCH lines instead.", "Slurm src/sbatch/xlate.c, which knows #PBS and #BSUB alone", check_sge},
    {"log-folder-late", Severity::kWarning, "", "22.05", "A script makes the folder of its own log",
     "The file is opened before the first command; without the folder, the job fails with exit code 0:53 and no log. "
     "Since 23.02, Slurm makes the folder.",
     "Make the folder before sbatch.",
     "sbatch 22.05.8 (tests/slurm/check_test.cpp); Slurm 23.02.0, commit ecc671a141: Allow recursive directory "
     "creation",
     check_late_folder},
    {"log-folder-missing", Severity::kWarning, "", "22.05", "The folder of --output or --error does not exist",
     "Slurm opens the file before the script runs; without the folder, the job fails with exit code 0:53 and no log. "
     "Since 23.02, Slurm makes the folder. Paths with % in the folder, and those below a folder that nodes alone may "
     "have, are not looked at, nor is anything where no slurmctld answers.",
     "Make the folder before sbatch.",
     "sbatch 22.05.8 (tests/slurm/submit_test.cpp); Slurm 23.02.0, commit ecc671a141: Allow recursive directory "
     "creation",
     check_missing_folder},
    {"option-after-script", Severity::kWarning, "", "", "sbatch options after the script",
     "sbatch ends its options at the script's name; further words are $1, $2, ... of the script.",
     "Write the options before the script.",
     "Slurm src/common/slurm_opt.c, slurm_option_table_create: \"+\" ends options at the first other word",
     check_late_options},
    {"wrap-with-script", Severity::kError, "", "", "--wrap with a script", "--wrap makes a script of its own.",
     "Quote the whole command, or leave --wrap out.", "sbatch 22.05.8 (tests/slurm/check_test.cpp)", check_wrap},
    {"script-as-value", Severity::kWarning, "", "", "An option takes the script as its value",
     "The option needs a value, and the next word became it.", "Give the value: --option=VALUE SCRIPT.",
     "Slurm src/sbatch/sbatch.c, _get_script_buffer: standard input without a script", check_no_script},
};

}  // namespace

std::span<const Rule> file_rules() { return kFileRules; }

}  // namespace yoke::slurm::check
