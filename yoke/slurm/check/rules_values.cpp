// Rules about the values of single options: what the programs refuse, ignore, or read otherwise than is meant.
#include <fmt/format.h>

#include "yoke/slurm/check/rules.h"
#include "yoke/slurm/words/values.h"

namespace yoke::slurm::check {
namespace {

void for_each_value(const Subject& subject,
                    const std::function<void(const GivenOption& given, const ValueProblem& problem)>& visit) {
  const auto judge = [&](const Request& request, Program program, bool is_step) {
    for (const auto& given : request.options().given) {
      const auto& value = given.value;
      if (!given.is_known || !given.has_value || value.empty() || value[0] == '=') continue;
      if (value.find('$') != value.npos || value.find('`') != value.npos) continue;
      auto problem = problem_of_value(given.spec->name, value, is_step);
      const bool is_to_shell = given.spec->name == "signal" && value.find("B:") != value.npos;
      if (program == kSrun && is_to_shell && !problem) {
        problem = {"B: is for batch scripts alone; srun takes SIGNAL[@SECONDS]", true};
      }
      if (problem) visit(given, *problem);
    }
  };
  for_each_request(subject, judge);
  if (subject.is_command_line) return;
  for (const auto& command : subject.script.commands) {  // jobs that a script submits
    if (command.name == "sbatch") judge(Request(command.options), kSbatch, false);
    if (command.name == "salloc") judge(Request(command.options), kSalloc, false);
  }
}

/// "-nodes=2" is read as -n with the value "odes=2". Empty if it is nothing of this kind.
std::string long_option_with_one_dash(const GivenOption& given) {
  if (given.written.size() != 2) return "";
  const auto whole = given.written.substr(1) + given.value.substr(0, given.value.find('='));
  return whole.size() > 2 && find_option(kSbatch, whole) != nullptr ? whole : "";
}

void check_values(const Subject& subject, Finder& finder) {
  for_each_value(subject, [&](const GivenOption& given, const ValueProblem& problem) {
    if (!problem.is_refused) return;
    if (const auto whole = long_option_with_one_dash(given); !whole.empty()) {
      finder.add(
          given.line,
          fmt::format("-{} has one dash, and is read as {} with the value {}", whole, given.written, given.value),
          fmt::format("Write --{}.", whole));
      return;
    }
    finder.add(given.line,
               fmt::format("{} {} is refused: {}", given.written, with_named_spaces(given.value), problem.advice));
  });
}

void check_ignored_values(const Subject& subject, Finder& finder) {
  for_each_value(subject, [&](const GivenOption& given, const ValueProblem& problem) {
    if (problem.is_refused) return;
    finder.add(given.line, fmt::format("{} {}: {}", given.written, given.value, problem.advice));
  });
}

void check_root(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program program, bool /*is_step*/) {
    for (const auto* option : {"uid", "gid"}) {
      if (!request.has(option)) continue;
      finder.add(request.line_of(option),
                 fmt::format("{} takes --{} from root alone, and refuses it from others", name(program), option));
    }
  });
}

void check_small_memory(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool /*is_step*/) {
    for (const auto* option : {"mem", "mem-per-cpu", "mem-per-gpu"}) {
      const auto* given = request.find(option);
      if (given == nullptr || !given->is_known) continue;
      const auto value = parse_count(given->value);
      const int64_t most = std::string_view(option) == "mem" ? 256 : 64;
      if (!value || *value >= most) continue;
      finder.add_as(*value < 100 ? Severity::kWarning : Severity::kNote, given->line,
                    fmt::format("{} {} is {} MiB; a number without a unit is in MiB", given->written, *value, *value),
                    fmt::format("Write {}G if GiB are meant.", *value));
    }
  });
}

void check_minutes(const Subject& subject, Finder& finder) {
  for (const auto& component : subject.script.components) {
    const auto time = component.value("time");
    if (has_word("1:00 01:00 2:00 02:00 24:00 48:00 72:00 96:00", time)) {
      finder.add(component.line_of("time"),
                 fmt::format("--time {} is {}, not hours", time, counted(*parse_minutes(time), "minute")),
                 fmt::format("Write {}:00 for hours, or 0:{} to make clear that minutes are meant.", time, time));
    }
    const auto value = parse_count(time);
    if (!value || (*value != 24 && *value != 48 && *value != 72 && *value != 96)) continue;
    finder.add(
        component.line_of("time"), fmt::format("--time {} is {} minutes, not hours", *value, *value),
        fmt::format("Write {}:00:00 for hours, or 0:{}:00 to make clear that minutes are meant.", *value, *value));
  }
}

constexpr Rule kValueRules[] = {
    {"bad-value", Severity::kError, "", "", "A value that the program refuses",
     "Numbers, times, lists and words have fixed forms.", "Use the form that the message names.",
     "Slurm src/common/slurm_opt.c and proc_args.c; sbatch and srun 22.05.8 (tests/slurm/check_test.cpp)",
     check_values},
    {"ignored-value", Severity::kWarning, "", "", "A value that the program takes and ignores",
     "Unknown words in some lists are dropped, and what is not a number becomes 0, without a message.",
     "Use the form that the message names.",
     "Slurm src/common/proc_args.c, parse_mail_type; slurm_opt.c, arg_set_nice and arg_set_priority; "
     "src/slurmctld/job_mgr.c, _create_job_array",
     check_ignored_values},
    {"root-option", Severity::kWarning, "", "", "--uid or --gid", "Only root may submit jobs of other users.",
     "Leave it out.", "Slurm src/common/slurm_opt.c, arg_set_uid and arg_set_gid", check_root},
    {"memory-without-unit", Severity::kWarning, "", "", "So little memory that GiB seem to be meant",
     "Memory without a unit is in MiB, and the program would be killed at once.", "Add G.",
     "Slurm src/common/proc_args.c, str_to_mbytes, 22.05.8 to 26.05.3", check_small_memory},
    {"time-in-minutes", Severity::kNote, "", "", "A time that may be meant in hours", "A number alone is in minutes.",
     "Write HH:MM:SS.", "Slurm src/common/parse_time.c, time_str2secs, 22.05.8 to 26.05.3", check_minutes},
};

}  // namespace

std::span<const Rule> value_rules() { return kValueRules; }

}  // namespace yoke::slurm::check
