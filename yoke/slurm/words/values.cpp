#include "yoke/slurm/words/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>

#include "yoke/base/text.h"
#include "yoke/slurm/words/request.h"

namespace yoke::slurm::check {
namespace {

using Words = std::initializer_list<std::string_view>;

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 18 && std::ranges::all_of(text, is_digit);
}

int64_t number_of(std::string_view text) { return is_number(text) ? std::stoll(std::string(text)) : -1; }

bool is_one_of(std::string_view text, Words words) { return std::ranges::find(words, lower_case(text)) != words.end(); }

bool are_all_of(std::string_view text, char separator, Words words) {
  const auto parts = split(text, separator);
  return !parts.empty() && std::ranges::all_of(parts, [&](std::string_view part) { return is_one_of(part, words); });
}

bool consists_of(std::string_view text, std::string_view characters) {
  return text.find_first_not_of(characters) == text.npos;
}

/// "1-3,7" between brackets.
bool is_range_list(std::string_view text) {
  const auto parts = split(text, ',');
  return !parts.empty() && std::ranges::all_of(parts, [](std::string_view part) {
    const auto dash = part.find('-');
    if (part.empty() || dash == 0 || dash + 1 == part.size()) return false;
    if (dash == part.npos) return true;
    const auto first = number_of(part.substr(0, dash)), last = number_of(part.substr(dash + 1));
    return first < 0 || last < 0 || first <= last;
  });
}

bool is_governor(std::string_view text) {
  return begins_with_any(lower_case(text), {"co", "perf", "pow", "user", "onde", "sche"});
}

bool is_frequency(std::string_view text) {
  const auto low = lower_case(text);
  return low.starts_with("lo") || low.starts_with("hi") || low.starts_with("med") ||
         (!text.empty() && text[0] >= '1' && text[0] <= '9');
}

/// Numbers of kHz are below all words.
int frequency_rank(std::string_view text) {
  const auto low = lower_case(text);
  return low.starts_with("lo") ? 1 : low.starts_with("med") ? 2 : low == "highm1" ? 4 : low.starts_with("hi") ? 3 : 0;
}

bool is_gpu_frequency(std::string_view text) {
  return is_number(text) || is_one_of(text, {"low", "medium", "high", "highm1"});
}

bool is_gpu_freq_value(std::string_view text) {
  const auto parts = split(text, ',');
  return !parts.empty() && std::ranges::all_of(parts, [](std::string_view part) {
    if (part.starts_with("memory=")) part.remove_prefix(7);
    return part == "verbose" || is_gpu_frequency(part);
  });
}

bool is_acctg_freq_value(std::string_view text) {
  const auto parts = split(text, ',');
  return !parts.empty() && std::ranges::all_of(parts, [](std::string_view part) {
    const auto equals = part.find('=');
    if (equals == part.npos) return is_number(part);
    return is_one_of(part.substr(0, equals), {"task", "energy", "network", "filesystem"}) &&
           is_number(part.substr(equals + 1));
  });
}

/// "gpu:a100:2,nvme:1k". Types may look like numbers, so only what is surely wrong is refused.
bool is_gres_value(std::string_view text) {
  const auto parts = split(text, ',');
  // A name with a type and without is refused. What begins with a digit may be a type, such as 4090.
  std::set<std::string_view> typed, untyped;
  for (const auto part : parts) {
    const auto fields = split(part.substr(0, part.find('(')), ':');
    if (part.empty() || fields.size() > 4 || (fields.size() == 4 && fields[0] != "gres")) return false;
    if (std::ranges::any_of(fields, [](std::string_view field) { return field.empty(); })) return false;
    const bool is_type = fields.size() == 3 || (fields.size() == 2 && !is_digit(fields[1][0]));
    if (is_type && fields[0] != "gres") typed.insert(fields[0]);
    if (fields.size() == 1 || (fields.size() == 2 && is_number(fields[1]))) untyped.insert(fields[0]);
  }
  if (std::ranges::any_of(typed, [&](std::string_view name) { return untyped.contains(name); })) return false;
  return std::ranges::all_of(parts, [](std::string_view part) {
    const auto fields = split(part.substr(0, part.find('(')), ':');
    if (fields.size() < 2 || !consists_of(fields.back().substr(0, 1), "-0123456789")) {
      return fields.size() < 3 || !is_number(fields[fields.size() - 2]);
    }
    return !consists_of(fields.back(), "-.0123456789") || is_number(fields.back());
  });
}

bool is_sockets_value(std::string_view text) {
  const auto parts = split(text, ':');
  return !parts.empty() && std::ranges::all_of(parts, [](std::string_view part) {
    return part == "*" || (!part.empty() && consists_of(part, "0123456789-"));
  });
}

bool is_limit_list(std::string_view text) {
  return are_all_of(
      text, ',', {"all", "none", "as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "rss", "stack"});
}

bool is_user_env_value(std::string_view text) {
  const auto unit = text.find_first_not_of("0123456789");
  return unit == text.npos || consists_of(text.substr(unit, 1), "sSlL");
}

bool is_switches_value(std::string_view text) { return parse_count(text.substr(0, text.find('@'))).has_value(); }

bool is_hint(std::string_view text) {
  return are_all_of(text, ',', {"compute_bound", "memory_bound", "multithread", "nomultithread", "help"});
}

bool is_gres_flags(std::string_view text) {
  const auto low = lower_case(text);
  if (low.find("disable-binding") != low.npos && low.find("enforce-binding") != low.npos) return false;
  return are_all_of(text, ',',
                    {"enforce-binding", "disable-binding", "allow-task-sharing", "multiple-tasks-per-sharing",
                     "one-task-per-sharing"});
}

bool is_exclusive_value(std::string_view text) {
  return is_one_of(text, {"exclusive", "oversubscribe", "user", "mcs", "topo", "allocation"});
}

bool is_mail_type(std::string_view text) {
  return is_one_of(text, {"none", "array_tasks", "begin", "end", "fail", "requeue", "all", "stage_out",
                          "invalid_depend", "time_limit", "time_limit_90", "time_limit_80", "time_limit_50"});
}

bool is_any_mail_type(std::string_view text) {
  const auto parts = split(text, ',');
  return std::ranges::any_of(parts, is_mail_type);
}

bool is_any_profile(std::string_view text) {
  return contains_any(lower_case(text), {"none", "all", "energy", "task", "lustre", "network"});
}

bool is_nodes_value(std::string_view text) {
  const auto range = parse_nodes(text);
  if (text == "0") return false;
  if (!range) return text.find_first_of(",:") != text.npos;  // lists of sizes, since Slurm 24.05
  return range->min <= range->max || range->max == 0;
}

bool is_component_list(std::string_view text) { return consists_of(text, "0123456789,-[]"); }
bool is_positive(std::string_view text) { return parse_count(text).has_value(); }
bool is_minutes(std::string_view text) { return parse_minutes(text).has_value(); }
bool is_memory(std::string_view text) { return parse_mebibytes(text).has_value(); }
bool is_gpus(std::string_view text) { return parse_gpus(text).has_value(); }
bool is_yes_or_no(std::string_view text) { return is_one_of(text, {"yes", "no"}); }
bool is_send_libs(std::string_view text) { return is_one_of(text, {"yes", "y", "no", "n"}); }
bool is_no_kill(std::string_view text) { return is_one_of(text, {"set", "off", "no"}); }
bool is_requeue(std::string_view text) { return is_one_of(text, {"expedite"}); }
bool is_open_mode(std::string_view text) { return consists_of(text.substr(0, 1), "aAtT"); }
bool is_zero_or_one(std::string_view text) { return text == "0" || text == "1"; }
bool has_accel_letter(std::string_view text) { return text.find_first_of("gnmv") != text.npos; }
bool begins_with_number(std::string_view text) { return is_digit(text[0]); }
/// A word that is no number becomes 0, which is taken.
bool is_nice(std::string_view text) {
  const auto digits = text.substr(text[0] == '-' || text[0] == '+' ? 1 : 0);
  return !is_number(digits) ? digits.size() < 10 || !is_digit(digits[0]) : number_of(digits) <= 2147483645;
}
bool is_priority(std::string_view text) {
  if (text[0] == '-') return number_of(text.substr(1)) < 1;
  return !is_number(text) || number_of(text) < 4294967294;
}

/// The form of the values of some options. Spaces separate their names.
struct Form {
  std::string_view options;
  bool (*takes)(std::string_view value);
  const char* advice;
};

// The forms of 22.05.8 were tried with the programs; those of 26.05.3 are from src/common/slurm_opt.c and proc_args.c.
constexpr Form kForms[] = {
    {"ntasks cpus-per-task ntasks-per-node tasks-per-node ntasks-per-core ntasks-per-socket ntasks-per-gpu "
     "ntasks-per-tres cpus-per-gpu threads-per-core cores-per-socket sockets-per-node mincpus thread-spec threads",
     is_positive, "it takes a whole number above 0"},
    {"core-spec kill-on-bad-exit", is_number, "it takes a whole number"},
    {"wait immediate", is_number, "it takes a number of seconds"},
    {"relative", is_number, "it takes the number of a node of the job, from 0"},
    {"resv-ports", is_number, "it takes a number of ports, or no value"},
    {"het-group pack-group", is_component_list, "it takes the numbers of components, from 0, such as 0 or 0,1"},
    {"jobid", begins_with_number, "it takes the number of a job"},
    {"nodes", is_nodes_value, "it takes a number, such as 2, or a range, such as 2-4, the smaller number first"},
    {"time time-min delay-boot", is_minutes,
     "times are minutes, MM:SS, HH:MM:SS, DAYS-HH, DAYS-HH:MM or DAYS-HH:MM:SS, without letters"},
    {"mem mem-per-cpu mem-per-gpu tmp", is_memory, "memory is a whole number with K, M, G or T; M unless given"},
    {"signal", is_signal_value, "it takes [B:]SIGNAL[@SECONDS], such as B:USR1@120, with at most 65535 seconds"},
    {"array", is_array_value, "it takes numbers and ranges, such as 0-9, 1-9:2 or 0-99%4"},
    {"gpus gpus-per-node gpus-per-task gpus-per-socket", is_gpus,
     "it takes a number or TYPE:NUMBER, such as 4 or a100:4"},
    {"gres", is_gres_value, "it takes NAME:NUMBER or NAME:TYPE:NUMBER, such as gpu:4 or gpu:a100:4"},
    {"begin deadline", is_time_value,
     "it takes HH:MM, YYYY-MM-DD[THH:MM], MM/DD/YY, today, tomorrow, noon, midnight, or now+COUNT with seconds, "
     "minutes, hours, days or weeks"},
    {"mail-type", is_any_mail_type,
     "it takes NONE, ALL, BEGIN, END, FAIL, REQUEUE, INVALID_DEPEND, STAGE_OUT, ARRAY_TASKS, or TIME_LIMIT and "
     "TIME_LIMIT_90, _80 and _50"},
    {"dependency", is_dependency_value,
     "it takes after, afterok, afternotok, afterany or aftercorr with job numbers, such as afterok:123, or singleton"},
    {"hint", is_hint, "it takes compute_bound, memory_bound, multithread or nomultithread"},
    {"distribution", is_distribution_value,
     "it takes block, cyclic, arbitrary or plane=NUMBER for nodes, such as block:cyclic"},
    {"gres-flags", is_gres_flags, "it takes enforce-binding or disable-binding; srun also allow-task-sharing"},
    {"nodelist exclude", is_host_list, "brackets hold numbers and ranges, as in n[1-3,7], and are closed"},
    {"open-mode", is_open_mode, "it takes append or truncate"},
    {"profile", is_any_profile, "it takes none, all, energy, task, lustre or network"},
    {"cpu-freq", is_cpu_freq_value,
     "it takes kHz, low, medium, highm1 or high, a range of them, or a governor such as performance"},
    {"wait-all-nodes oom-kill-step", is_zero_or_one, "it takes 0 or 1"},
    {"mem-bind", is_mem_bind_value, "it takes local, none, rank, map_mem:LIST or mask_mem:LIST"},
    {"gpu-freq", is_gpu_freq_value, "it takes low, medium, high, highm1 or MHz, and memory= with one of them"},
    {"exclusive", is_exclusive_value, "it takes no value, or user, mcs or (since 24.11) topo"},
    {"switches", is_switches_value, "it takes NUMBER[@TIME]"},
    {"nice", is_nice, "it takes a number from -2147483645 to 2147483645"},
    {"priority", is_priority, "it takes a number from 0 to 4294967293, or TOP"},
    {"extra-node-info", is_sockets_value, "it takes SOCKETS[:CORES[:THREADS]]"},
    {"acctg-freq", is_acctg_freq_value, "it takes seconds, or task=, energy=, network= and filesystem= with seconds"},
    {"propagate", is_limit_list, "it takes ALL, NONE, or limits such as STACK,MEMLOCK"},
    {"get-user-env", is_user_env_value, "it takes seconds with S or L"},
    {"kill-on-invalid-dep", is_yes_or_no, "it takes yes or no"},
    {"no-kill", is_no_kill, "it takes no value, or off"},
    {"requeue", is_requeue, "it takes no value, or (since 25.11) expedite"},
    {"send-libs", is_send_libs, "it takes yes or no"},
    {"accel-bind", has_accel_letter, "it takes the letters g, n and v"},
};

/// What a program takes and ignores; empty if there is nothing.
std::string ignored_part(std::string_view option, std::string_view value) {
  if (option == "array") {
    const auto percent = value.find('%');
    if (percent == value.npos) return "";
    if (percent == 0) return "no index comes before %, so the array has one task, with the index 0";
    const auto limit = value.substr(percent + 1, value.find(',', percent) - percent - 1);
    if (percent > 0 && value[percent - 1] == ',') {
      return "the comma before % adds the index 0 to the array";
    }
    if (limit.find('%') != limit.npos) {
      return fmt::format("\"%{}\" has two limits, and the first one counts", limit);
    }
    if (limit.empty() || limit[0] < '1' || limit[0] > '9') {
      return fmt::format("\"%{}\" is not a limit, so all tasks may run at once; it takes a number, such as %4", limit);
    }
  }
  if (option == "mail-type") {
    for (const auto part : split(value, ',')) {
      if (!is_mail_type(part)) return fmt::format("\"{}\" is not a type of mail, and is ignored", part);
    }
  }
  const auto digits = value.substr(value[0] == '-' || value[0] == '+' ? 1 : 0);
  if ((option == "nice" || (option == "priority" && !is_one_of(value, {"top"}))) && !is_number(digits)) {
    return fmt::format(
        "it is not a number, and is read as {}{}",
        digits.empty() || !is_digit(digits[0]) ? "0" : digits.substr(0, digits.find_first_not_of("0123456789")),
        option == "priority" && (digits.empty() || !is_digit(digits[0])) ? ", which holds the job" : "");
  }
  return "";
}

}  // namespace

bool is_dependency_value(std::string_view text) {
  std::string parts(text);
  std::ranges::replace(parts, '?', ',');
  const auto all = split(parts, ',');
  return !all.empty() && std::ranges::all_of(all, [](std::string_view part) {
    if (is_digit(part.empty() ? '\0' : part[0])) return true;  // an old form, and a further job
    const auto low = lower_case(part);
    if (low.starts_with("singleton")) return true;
    for (const std::string_view kind :
         {"afternotok:", "aftercorr:", "afterany:", "afterok:", "afterburstbuffer:", "after:", "expand:"}) {
      if (low.starts_with(kind)) return part.size() > kind.size() && is_digit(part[kind.size()]) && part.back() != ':';
    }
    return false;
  });
}

bool is_host_list(std::string_view text) {
  if (text.find('/') != text.npos) return true;
  while (!text.empty()) {
    const auto open = text.find_first_of("[]");
    if (open == text.npos) return true;
    const auto close = text.find_first_of("[]", open + 1);
    if (text[open] == ']' || close == text.npos || text[close] == '[') return false;
    if (!is_range_list(text.substr(open + 1, close - open - 1))) return false;
    text.remove_prefix(close + 1);
  }
  return true;
}

bool is_distribution_value(std::string_view text) {
  const auto low = lower_case(text);
  if (low.starts_with("plane")) {
    const auto equals = low.find('=');
    return equals != low.npos && parse_count(low.substr(equals + 1)).has_value();
  }
  const auto comma = low.find(',');
  if (comma != low.npos && !is_one_of(low.substr(comma + 1), {"pack", "nopack", ""})) return false;
  const auto levels = split(std::string_view(low).substr(0, comma), ':');
  if (levels.empty() || levels.size() > 3) return false;
  if (levels.size() == 1) {
    return is_one_of(levels[0], {"block", "cyclic", "arbitrary", "hostfile", "*", "pack", "nopack"});
  }
  return is_one_of(levels[0], {"block", "cyclic", "*"}) &&
         std::all_of(levels.begin() + 1, levels.end(), [](std::string_view level) {
           return is_one_of(level, {"block", "cyclic", "fcyclic", "*"});
         });
}

bool is_cpu_freq_value(std::string_view text) {
  const auto colon = text.find(':');
  const auto range = text.substr(0, colon);
  const auto dash = range.find('-');
  const auto first = range.substr(0, dash);
  if (is_governor(first)) return colon == text.npos && dash == text.npos;
  if (!is_frequency(first)) return false;
  if (dash != range.npos) {
    const auto second = range.substr(dash + 1);
    if (!is_frequency(second) || frequency_rank(first) > frequency_rank(second)) return false;
    if (is_number(first) && is_number(second) && number_of(second) < number_of(first)) return false;
  }
  return colon == text.npos || is_governor(text.substr(colon + 1));
}

bool is_mem_bind_value(std::string_view text) {
  bool is_in_list = false;
  const auto is_entry = [](std::string_view entry) {
    return !entry.empty() && consists_of(entry, "0123456789abcdefABCDEFxX*");
  };
  for (const auto part : split(text, ',')) {
    const auto low = lower_case(part);
    const auto separator = part.find_first_of(":=");
    if (low.starts_with("map_mem") || low.starts_with("mask_mem") || low.starts_with("mapmem") ||
        low.starts_with("maskmem")) {
      if (separator == part.npos || !is_entry(part.substr(separator + 1))) return false;
      is_in_list = true;
    } else if (!(is_in_list && is_entry(part)) &&
               !is_one_of(part, {"p", "prefer", "sort", "nosort", "q", "quiet", "v", "verbose", "no", "none", "rank",
                                 "local", "help"})) {
      return false;
    }
  }
  return true;
}

bool is_gpu_bind_value(std::string_view text) {
  auto low = lower_case(text);
  if (low.starts_with("verbose,")) low = low.substr(8);
  if (low.starts_with("closest") || low.starts_with("none")) return true;
  if (low.starts_with("single:") || low.starts_with("per_task:")) return true;
  for (const std::string_view list : {"map_gpu:", "map:"}) {
    if (low.starts_with(list)) return consists_of(std::string_view(low).substr(list.size()), "0123456789*,");
  }
  for (const std::string_view list : {"mask_gpu:", "mask:"}) {
    if (low.starts_with(list)) return consists_of(std::string_view(low).substr(list.size()), "0123456789abcdefx*,");
  }
  return false;
}

bool takes_empty(std::string_view option) {
  constexpr std::string_view kRefused =
      "batch clusters cluster distribution gpu-bind partition export-file bbf nodefile uid gid";
  constexpr std::string_view kTaken =
      "array dependency exclude exclusive gpus gpus-per-node gpus-per-task gpus-per-socket nice nodelist priority "
      "propagate";
  if (has_word(kRefused, option)) return false;
  if (has_word(kTaken, option)) return true;
  return std::ranges::none_of(kForms, [&](const Form& form) { return has_word(form.options, option); });
}

std::string with_named_spaces(std::string text) {
  constexpr std::string_view kNamed = "<no-break space>";
  for (auto at = text.find(kNoBreakSpace); at != text.npos; at = text.find(kNoBreakSpace, at + kNamed.size())) {
    text.replace(at, kNoBreakSpace.size(), kNamed);
  }
  return text;
}

std::optional<ValueProblem> problem_of_value(std::string_view option, std::string_view value, bool is_step) {
  if (option == "dependency" && is_step) return std::nullopt;
  for (const auto& form : kForms) {
    if (has_word(form.options, option) && !form.takes(value)) return ValueProblem{form.advice, true};
  }
  auto ignored = ignored_part(option, value);
  if (ignored.empty()) return std::nullopt;
  return ValueProblem{std::move(ignored), false};
}

}  // namespace yoke::slurm::check
