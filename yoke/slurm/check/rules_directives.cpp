// Rules about #SBATCH lines and about single options: what sbatch does not read, and what it reads otherwise.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ranges>

#include "yoke/base/spelling.h"
#include "yoke/base/text.h"
#include "yoke/slurm/check/rules.h"
#include "yoke/slurm/words/values.h"

namespace yoke::slurm::check {
namespace {

/// Dashes of typography: en dash, em dash, minus, non-breaking hyphen, horizontal bar.
constexpr std::string_view kLongDashes[] = {"\xe2\x80\x90", "\xe2\x80\x91", "\xe2\x80\x92", "\xe2\x80\x93",
                                            "\xe2\x80\x94", "\xe2\x80\x95", "\xe2\x88\x92"};

size_t long_dash_length(std::string_view text) {
  for (const auto dash : kLongDashes) {
    if (text.starts_with(dash)) return dash.size();
  }
  return 0;
}

constexpr std::string_view kBlanks = " \t";

/// Whether the quotes of a line are closed on it, the next line does not continue it, and nothing on it begins a text
/// whose end only a shell finds. "false" for everything that is not sure.
bool is_complete_line(std::string_view line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\\' && quote != '\'') {
      if (i + 1 == line.size()) return false;
      ++i;
    } else if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"' || c == '`') {
      if (i > 0 && line[i - 1] == '$') return false;
      quote = c;
    } else if (c == '#' && (i == 0 || std::string_view(" \t;&|()").find(line[i - 1]) != std::string_view::npos)) {
      return true;
    } else if (line.substr(i).starts_with("<<")) {
      return false;
    } else if (line.substr(i).starts_with("${") && line.find('}', i) == line.npos) {
      return false;
    }
  }
  return quote == 0;
}

/// Knows whether a line that begins with # is surely a comment, and not a part of a string, a here-document or a
/// command that goes on. Only such lines are changed.
class Comments {
 public:
  explicit Comments(const Script& script) : script_(script) {
    const auto& lines = script.lines;
    num_complete_ = std::ranges::find_if_not(lines, is_complete_line) - lines.begin();
  }
  bool are_sure(int64_t line) const {
    if (line <= script_.first_command_line || script_.first_command_line == 0) return true;
    return script_.is_shell && line - 1 <= num_complete_;
  }
  std::vector<Edit> replacement(int64_t line, std::string text) const {
    if (!are_sure(line)) return {};
    return {{Edit::Kind::kReplaceLine, line, std::move(text)}};
  }

 private:
  const Script& script_;
  std::ptrdiff_t num_complete_ = 0;
};

/// Whether a late directive asks only for what the header does not ask for, so that moving it contradicts nothing.
bool adds_options(const Script& script, const Directive& directive) {
  if (script.is_het()) return false;
  const auto parsed = parse_options(kSbatch, option_words(directive.words));
  return parsed.problems.empty() && std::ranges::none_of(parsed.given, [&](const GivenOption& given) {
           return script.job().has(given.spec->name);
         });
}

void check_late(const Subject& subject, Finder& finder) {
  const Comments comments(subject.script);
  std::vector<const Directive*> late;
  for (const auto& directive : subject.script.directives) {
    if (directive.is_late) late.push_back(&directive);
  }
  // A late component belongs together, so nothing of it is moved.
  bool is_of_component = false;
  for (const auto* directive : late) {
    std::vector<Edit> edits;
    is_of_component |= directive->is_component;
    if (!is_of_component && comments.are_sure(directive->line) && adds_options(subject.script, *directive)) {
      edits = {{Edit::Kind::kDeleteLine, directive->line, ""},
               {Edit::Kind::kInsertBefore, subject.script.first_command_line,
                subject.script.lines[static_cast<size_t>(directive->line - 1)]}};
    }
    finder.add(directive->line,
               fmt::format("#SBATCH{} comes after the first command (line {}), and sbatch does not read it",
                           directive->text, subject.script.first_command_line),
               {}, std::move(edits));
  }
}

bool are_all_options(std::string_view text) {
  const auto words = option_words(words_of(text));
  return parse_options(kSbatch, words).num_used == words.size();
}

void check_misspelt(const Subject& subject, Finder& finder) {
  const auto& lines = subject.script.lines;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    const auto number = static_cast<int64_t>(i) + 1;
    const auto begin = line.find_first_not_of(" \t");
    if (begin == line.npos || line[begin] != '#' || line.starts_with("#SBATCH")) continue;
    if (subject.script.is_in_text[i]) continue;
    auto rest = line.substr(begin + 1);
    if (rest.starts_with("#")) continue;  // "##SBATCH" is how people switch a directive off
    const bool has_space = rest.starts_with(" ");
    while (rest.starts_with(" ")) rest.remove_prefix(1);
    if (rest.starts_with("#")) continue;  // so is "# #SBATCH"
    const auto end = std::min(rest.find_first_of(" \t-"), rest.size());
    const auto word = rest.substr(0, end);
    const auto after = trimmed(std::string_view(rest).substr(end), kBlanks);
    // "# SBATCH-style comments are ..."
    if (end < rest.size() && rest[end] == '-' && !after.starts_with("--")) continue;
    // "#xSBATCH" and "#_SBATCH" are switched off too.
    if (word.ends_with("SBATCH") && word.size() > 6 && !word.starts_with("S")) continue;
    if (word.size() < 5 || word.size() > 8 || !(after.starts_with("-") || long_dash_length(after) > 0)) continue;
    const auto upper = upper_case(word);
    if (upper == "SLURM") continue;  // has a rule of its own
    if (edit_distance(upper, "SBATCH") > 1) continue;
    // "#   sbatch -N 4 job.sh" says how the script is used.
    if (word == "sbatch" && (has_space || !are_all_options(rest.substr(end)))) continue;
    const bool is_exact = word == "SBATCH";
    if (is_exact && begin == 0 && !has_space) continue;
    const auto why = !is_exact   ? fmt::format("\"#{}\" is not #SBATCH", word)
                     : has_space ? std::string("there is a space between # and SBATCH")
                                 : std::string("there is a space before #SBATCH");
    finder.add(number, fmt::format("sbatch takes this line as a comment, because {}", why),
               "Write #SBATCH at the beginning of the line; ##SBATCH is a clearer way to switch an option off.");
  }
}

void check_slurm_word(const Subject& subject, Finder& finder) {
  const Comments comments(subject.script);
  const auto& lines = subject.script.lines;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!subject.script.is_in_text[i] && lines[i].starts_with("#SLURM") &&
        trimmed(lines[i].substr(6), kBlanks).starts_with("-")) {
      const auto number = static_cast<int64_t>(i) + 1;
      const auto first = subject.script.first_command_line;
      finder.add(number,
                 fmt::format("#SLURM is an old name of #SBATCH{}",
                             first == 0 || number < first
                                 ? ", and sbatch reports an error for it"
                                 : fmt::format("; after the first command (line {}), sbatch reads neither", first)),
                 {}, comments.replacement(number, "#SBATCH" + lines[i].substr(6)));
    }
  }
}

void check_long_dash(const Subject& subject, Finder& finder) {
  const Comments comments(subject.script);
  for (const auto& directive : subject.script.directives) {
    if (directive.is_late) continue;  // has a rule of its own
    for (const auto& word : directive.words) {
      const auto length = long_dash_length(word);
      if (length == 0) continue;
      auto line = subject.script.lines[static_cast<size_t>(directive.line - 1)];
      const auto at = line.find(word);
      if (at != line.npos) {
        const auto more = long_dash_length(std::string_view(line).substr(at + length));
        const auto used = length + (more > 0 ? more : line[at + length] == '-' ? 1 : 0);
        const auto name = line.substr(at + used, line.find_first_of(" \t=", at + used) - at - used);
        const bool is_long = used > length || (name.size() > 1 && name.find_first_of("0123456789") == name.npos);
        line.replace(at, used, is_long ? "--" : "-");
      }
      finder.add(
          directive.line,
          fmt::format(
              "\"{}\" begins with a typographic dash, not with -; sbatch says: Invalid directive found in batch script",
              word),
          {}, comments.replacement(directive.line, line));
      break;
    }
  }
}

void check_leftovers(const Subject& subject, Finder& finder) {
  for (const auto& word : subject.script.leftovers | std::views::join) {
    if (long_dash_length(word.text) > 0) continue;
    const auto& line = subject.script.lines[static_cast<size_t>(word.line - 1)];
    if (word.text.find(kNoBreakSpace) != word.text.npos) {
      auto mended = line;
      for (auto at = mended.find(kNoBreakSpace); at != mended.npos; at = mended.find(kNoBreakSpace, at)) {
        mended.replace(at, kNoBreakSpace.size(), " ");
      }
      finder.add(word.line,
                 fmt::format("\"{}\" has a no-break space (U+00A0), which separates no words; sbatch says: Invalid "
                             "directive found in batch script",
                             with_named_spaces(word.text)),
                 "Write an ordinary space.", {{Edit::Kind::kReplaceLine, word.line, mended}});
      continue;
    }
    const bool is_equals = word.text.starts_with("=") || line.find("= ") != line.npos || line.find(" =") != line.npos;
    finder.add(word.line,
               fmt::format("\"{}\" is not an option; sbatch says: Invalid directive found in batch script", word.text),
               is_equals ? "Write --name=value without spaces around =."
                         : "Options begin with - or --; quote values with spaces.");
  }
}

bool takes_any_text(std::string_view option) {
  return has_word("job-name comment output error input chdir account mail-user wckey extra", option);
}

/// Whether "-J=foo" is written so, without a space.
bool is_short_with_equals(const Subject& subject, const GivenOption& given) {
  if (given.written.size() != 2) return false;
  const auto text = given.written + "=";
  const auto& lines = subject.script.lines;
  if (given.line >= 1 && given.line <= std::ssize(lines)) {
    return lines[static_cast<size_t>(given.line - 1)].find(text) != std::string::npos;
  }
  return std::ranges::any_of(subject.script.commands, [&](const Command& command) {
    return std::ranges::any_of(command.words, [&](const OptionWord& word) { return word.text.starts_with(text); });
  });
}

void check_equals(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool /*is_step*/) {
    for (const auto& given : request.options().given) {
      if (!given.is_known || !given.has_value) continue;
      if (!given.written.starts_with("---") && given.spec->value == Value::kRequired && !given.value.empty() &&
          given.value[0] == '=') {
        const auto why = is_short_with_equals(subject, given)
                             ? fmt::format("{} takes its value without =", given.written)
                             : std::string("there is a space before =");
        finder.add_as(takes_any_text(given.spec->name) ? Severity::kWarning : Severity::kError, given.line,
                      fmt::format("the value of {} is \"{}\", because {}", given.written, given.value, why));
      }
      const std::string_view option = given.spec->name;
      if (option == "output" || option == "job-name" || option == "comment") continue;  // empty is a value
      if (!given.value.empty() || !given.written.starts_with("--") || given.spec->value == Value::kOptional) continue;
      const auto cause = "is there a space after =, or a variable that is not set?";
      const bool is_taken = takes_empty(option);
      finder.add_as(
          is_taken ? Severity::kWarning : Severity::kError, given.line,
          fmt::format("{} has an empty value{}; {}", given.written, is_taken ? "" : ", and is refused", cause));
    }
  });
}

void check_continuation(const Subject& subject, Finder& finder) {
  for (const auto& directive : subject.script.directives) {
    const auto comment = directive.text.find(" #");
    if (directive.is_late || comment != std::string::npos || !trimmed(directive.text, kBlanks).ends_with("\\"))
      continue;
    const auto& lines = subject.script.lines;
    const auto next = static_cast<size_t>(directive.line);
    if (next < lines.size() && lines[next].starts_with("#SBATCH")) {
      finder.add_as(Severity::kNote, directive.line,
                    "the backslash has no effect, because sbatch reads each line for itself");
    } else {
      finder.add(directive.line, "the backslash does not continue the line: sbatch does not read the next one");
    }
  }
}

void check_quote(const Subject& subject, Finder& finder) {
  for (const auto& directive : subject.script.directives) {
    if (directive.is_late || directive.unmatched_quote == 0) continue;
    finder.add(directive.line, fmt::format("the quote {} is not closed; sbatch says: Unmatched `{}`",
                                           directive.unmatched_quote, directive.unmatched_quote));
  }
}

void check_variable(const Subject& subject, Finder& finder) {
  for (const auto& directive : subject.script.directives) {
    if (directive.is_late) continue;
    for (const auto& word : directive.words) {
      const auto at = word.find('$');
      if ((at == word.npos || at + 1 >= word.size() ||
           (std::isalpha(static_cast<unsigned char>(word[at + 1])) == 0 && word[at + 1] != '{' && word[at + 1] != '(' &&
            word[at + 1] != '_')) &&
          word.find('`') == word.npos) {
        continue;
      }
      finder.add(directive.line,
                 fmt::format("sbatch does not expand variables; it takes \"{}\" as it is written", word));
    }
  }
}

void check_tilde(const Subject& subject, Finder& finder) {
  for (const auto& component : subject.script.components) {
    for (const auto* name : {"output", "error", "input", "chdir"}) {
      const auto* given = component.find(name);
      if (given == nullptr || !given->value.starts_with("~") || given->line == 0 || subject.is_command_line) continue;
      finder.add(given->line, fmt::format("sbatch does not expand ~; {} {} is a folder with the name ~", given->written,
                                          given->value));
    }
  }
}

void check_hash(const Subject& subject, Finder& finder) {
  for (const auto& directive : subject.script.directives) {
    if (!directive.is_late && directive.text.find(" #SBATCH -") != std::string::npos &&
        directive.text.find_first_of("\"'") == std::string::npos) {
      finder.add(directive.line, "sbatch takes the second #SBATCH on this line as a comment, and drops its options",
                 "Write it on a line of its own.");
    }
    if (!directive.has_hash || directive.is_late) continue;
    finder.add(directive.line, fmt::format("a # begins a comment even within a word, so sbatch reads \"{}\"",
                                           directive.words.empty() ? "" : directive.words.back()));
  }
}

// ---- Options that a program has not, or not yet

void for_each_problem(const Subject& subject, OptionProblemKind kind,
                      const std::function<void(const OptionProblem& problem, Program program)>& visit) {
  for_each_request(subject, [&](const Request& request, Program program, bool /*is_step*/) {
    for (const auto& problem : request.options().problems) {
      if (problem.kind == kind) visit(problem, program);
    }
  });
}

void check_unknown(const Subject& subject, Finder& finder) {
  for_each_problem(subject, OptionProblemKind::kUnknown, [&](const OptionProblem& problem, Program program) {
    if (problem.hint.empty()) {
      finder.add_as(
          Severity::kWarning, problem.line,
          fmt::format("{} is not an option of {}, unless a plugin of the site adds it; otherwise {} refuses it",
                      problem.written, name(program), name(program)));
    } else {
      finder.add(
          problem.line,
          fmt::format("{} is not an option of {}; did you mean --{}?", problem.written, name(program), problem.hint),
          fmt::format("Write --{}.", problem.hint));
    }
  });
}

void check_other_program(const Subject& subject, Finder& finder) {
  for_each_problem(subject, OptionProblemKind::kOtherProgram, [&](const OptionProblem& problem, Program program) {
    finder.add(problem.line,
               fmt::format("{} is an option of {}; {} does not have it, and refuses it", problem.written, problem.hint,
                           name(program)),
               fmt::format("Give it to {} instead.", problem.hint));
  });
}

void check_ambiguous(const Subject& subject, Finder& finder) {
  for_each_problem(subject, OptionProblemKind::kAmbiguous, [&](const OptionProblem& problem, Program program) {
    finder.add(problem.line,
               fmt::format("{} refuses {}, because it may mean {}", name(program), problem.written, problem.hint));
  });
}

void check_missing_value(const Subject& subject, Finder& finder) {
  for_each_problem(subject, OptionProblemKind::kMissingValue, [&](const OptionProblem& problem, Program program) {
    const auto* spec = problem.written.starts_with("--") ? find_option(program, problem.written.substr(2)) : nullptr;
    if (problem.hint.empty()) {
      finder.add(problem.line, fmt::format("{} has no value", problem.written));
    } else {
      finder.add_as(
          spec != nullptr && takes_any_text(spec->name) ? Severity::kWarning : Severity::kError, problem.line,
          fmt::format("{} has no value, so \"{}\" on the next line becomes its value", problem.written, problem.hint));
    }
  });
}

void check_unwanted_value(const Subject& subject, Finder& finder) {
  for_each_problem(subject, OptionProblemKind::kUnwantedValue, [&](const OptionProblem& problem, Program /*program*/) {
    finder.add(problem.line, fmt::format("{} does not take a value, and is refused with one", problem.written));
  });
}

void check_version(const Subject& subject, Finder& finder) {
  if (!subject.version) return;
  for_each_request(subject, [&](const Request& request, Program program, bool /*is_step*/) {
    for (const auto& given : request.options().given) {
      if (has_option(*given.spec, *subject.version)) continue;
      const bool is_new = *given.spec->since != 0 &&
                          Version{subject.version->year, subject.version->month, 0} < *parse_version(given.spec->since);
      finder.add(given.line, fmt::format("{} of Slurm {} does not have {}, which {} {}", name(program),
                                         to_text(*subject.version), given.written, is_new ? "came with" : "was last in",
                                         is_new ? given.spec->since : given.spec->until));
    }
  });
}

bool part_is_count(std::string_view text) { return !text.empty() && std::ranges::all_of(text, is_digit); }

/// "gpu" and "gpu:a100" of "gpu:2" and "gpu:a100:2".
std::string gres_without_count(std::string_view part) {
  const auto colon = part.rfind(':');
  if (colon == part.npos) return std::string(part);
  return std::string(part_is_count(part.substr(colon + 1)) ? part.substr(0, colon) : part);
}

void check_duplicate_gres(const Request& request, Finder& finder) {
  for (const auto* option : {"gres", "gpus", "gpus-per-node", "gpus-per-task"}) {
    const auto value = request.value(option);
    std::map<std::string, std::string_view> seen;
    for (const auto part : split(value, ',')) {
      const auto name = std::string_view(option) != "gres" && part_is_count(part) ? "" : gres_without_count(part);
      const auto [before, is_new] = seen.try_emplace(name, part);
      if (is_new || part.empty()) continue;
      if (before->second != part) {
        finder.add(request.line_of(option),
                   fmt::format("--{} asks for {} and for {}; the last one counts", option, before->second, part));
      }
      before->second = part;
    }
  }
}

void check_duplicate(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool /*is_step*/) {
    const auto& given = request.options().given;
    for (size_t i = 0; i < given.size(); ++i) {
      const std::string_view option = given[i].spec->name;
      if (option == "verbose" || option == "mail-type" || option == "quiet" || given[i].line == 0) continue;
      for (size_t j = 0; j < i; ++j) {
        if (given[j].spec != given[i].spec || given[j].line == 0) continue;
        if (given[j].value == given[i].value) {
          finder.add_as(Severity::kNote, given[i].line, fmt::format("--{} is given twice with the same value", option));
        } else if (given[i].is_known && given[j].is_known) {
          finder.add(given[i].line, fmt::format("--{} is given twice: {} here, and {} on line {}; this one counts",
                                                option, given[i].value, given[j].value, given[j].line));
        }
        break;
      }
    }
    check_duplicate_gres(request, finder);
  });
}

constexpr const char* kParser = "Slurm src/sbatch/opt.c, _opt_batch_script and get_argument";
constexpr const char* kOptionsSource = "Slurm src/common/slurm_opt.c, 22.05.8 to 26.05.3";

constexpr Rule kDirectiveRules[] = {
    {"late-directive", Severity::kWarning, "", "", "#SBATCH after the first command",
     "sbatch stops reading options at the first line that is neither empty nor a comment.",
     "Move the line above the first command.", kParser, check_late},
    {"misspelt-directive", Severity::kWarning, "", "", "A line that looks like #SBATCH but is a comment",
     "sbatch reads lines that begin with exactly #SBATCH, without a space.",
     "Write #SBATCH at the beginning of the line.", kParser, check_misspelt},
    {"slurm-directive", Severity::kWarning, "", "", "#SLURM instead of #SBATCH",
     "sbatch prints an error and asks to change it.", "Write #SBATCH.", kParser, check_slurm_word},
    {"typographic-dash", Severity::kError, "", "", "A long dash instead of -",
     "Text processors and web pages replace -- by a long dash.", "Write - or --.", kParser, check_long_dash},
    {"directive-word", Severity::kError, "", "", "A word of a directive is not an option",
     "sbatch refuses the script, and names the word.", "Options begin with - or --.", kParser, check_leftovers},
    {"space-at-equals", Severity::kError, "", "", "A space before or after =, or = after a short option",
     "The value becomes empty or begins with =; only options that take any text accept that.",
     "Write --name=value without spaces.", kParser, check_equals},
    {"directive-continuation", Severity::kWarning, "", "", "A directive that is continued with a backslash",
     "sbatch drops the backslash and reads each line for itself, so the next line is a command of the shell.",
     "Begin each line with #SBATCH.", kParser, check_continuation},
    {"unmatched-quote", Severity::kError, "", "", "A quote that is not closed", "sbatch refuses the script.",
     "Close the quote on the same line.", kParser, check_quote},
    {"directive-variable", Severity::kWarning, "", "", "A variable in a directive",
     "No shell reads directives, so the name of a file really contains the $; a number is refused.",
     "Use %j, %x, %u and other patterns of sbatch, or give the option on the command line: sbatch "
     "--output=$HOME/log.txt.",
     "Slurm src/sbatch/opt.c, get_argument; src/slurmd/common/fname.c, 22.05.8 to 25.05.8, and "
     "src/common/print_fields.c, 25.11 and 26.05.3, which replace patterns with % alone",
     check_variable},
    {"directive-tilde", Severity::kWarning, "", "", "~ in a directive",
     "No shell reads directives, so sbatch looks for a folder with this name.", "Write the whole path.", kParser,
     check_tilde},
    {"directive-hash", Severity::kWarning, "", "", "# within a word of a directive",
     "The rest of the word is lost without a message.", "Write \\# or leave the # out.", kParser, check_hash},
    {"unknown-option", Severity::kError, "", "", "An option that does not exist",
     "The program refuses it: unrecognized option.", "Look it up in the program's --help.", kOptionsSource,
     check_unknown},
    {"option-of-other-program", Severity::kError, "", "", "An option of srun for sbatch, or the other way round",
     "The program refuses it: unrecognized option.", "Give it to the other program.", kOptionsSource,
     check_other_program},
    {"ambiguous-option", Severity::kError, "", "", "A shortened option that may mean several",
     "The program refuses it, and lists what it could be.", "Write the whole name.", kOptionsSource, check_ambiguous},
    {"missing-value", Severity::kError, "", "", "An option without its value",
     "The next word becomes the value, which is taken where any text is one; without a next word, it is refused.",
     "Add the value.", kOptionsSource, check_missing_value},
    {"unwanted-value", Severity::kError, "", "", "A value for an option that takes none",
     "The program refuses it: doesn't allow an argument.", "Leave the value out.", kOptionsSource,
     check_unwanted_value},
    {"option-not-in-version", Severity::kError, "", "", "An option that this version does not have",
     "Options came and went between 22.05 and 26.05. Needs --slurm or a cluster.",
     "Use an option that this version has.", kOptionsSource, check_version},
    {"duplicate-option", Severity::kWarning, "", "", "An option that is given twice",
     "The last one counts; the first one has no effect.", "Delete one of them.", kParser, check_duplicate},
};

}  // namespace

std::span<const Rule> directive_rules() { return kDirectiveRules; }

}  // namespace yoke::slurm::check
