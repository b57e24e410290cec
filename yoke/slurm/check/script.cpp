#include "yoke/slurm/check/script.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "yoke/base/text.h"

namespace yoke::slurm::check {
namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

bool is_component_word(std::string_view text) {
  const auto words = words_of(text);
  return !words.empty() && (words[0] == "hetjob" || words[0] == "packjob");
}

/// Slurm's own shells and wrappers of them. Python and others have another syntax.
bool names_shell(std::string_view first_line) {
  if (!first_line.starts_with("#!")) return true;  // somebody forgot it; it is a shell most of the time
  for (const auto word : words_of(first_line.substr(2))) {
    const auto base = base_name(word);
    if (base == "bash" || base == "sh" || base == "dash" || base == "ksh" || base == "zsh" || base == "srun")
      return true;
    if (base != "env" && !base.starts_with("-")) return false;
  }
  return true;
}

/// A program that starts the one after its options and `num_operands` words.
struct Wrapper {
  std::string_view name;
  std::string_view letters;  ///< Of its options with a value.
  size_t num_operands = 0;
};
constexpr Wrapper kWrappers[] = {
    {"command", ""},        {"env", "CSu"}, {"exec", "a"},           {"nice", "n"},      {"nohup", ""},
    {"numactl", "CNPimpw"}, {"time", "fo"}, {"sudo", "CDRTUghprtu"}, {"taskset", "", 1}, {"timeout", "ks", 1},
};

using Values = std::map<std::string, std::string>;

/// The text of `word` with $NAME and ${NAME} replaced. nullopt if something else is expanded.
std::optional<std::string> expand(const OptionWord& word, const Values& values) {
  std::string result;
  size_t at = 0;
  for (const auto& [begin, end] : word.expansions) {
    auto name = word.text.substr(begin + 1, end - begin - 1);
    if (name.starts_with('{') && name.ends_with('}')) name = name.substr(1, name.size() - 2);
    const auto found = word.text[begin] == '$' ? values.find(name) : values.end();
    if (found == values.end()) return std::nullopt;
    result += word.text.substr(at, begin - at) + found->second;
    at = end;
  }
  return result + word.text.substr(at);
}

/// Runs through the commands and keeps the values of variables that are certain.
class Evaluator {
 public:
  Evaluator(Script& script, Values values) : script_(script), values_(std::move(values)) {}

  void run() {
    for (const auto& shell : script_.shell.commands) {
      if (!shell.words.empty()) add(shell);
      assign(shell);
    }
  }

 private:
  void assign(const ShellCommand& shell) {
    const bool is_certain = !shell.is_in_loop && !shell.is_in_condition && !shell.is_in_function &&
                            !shell.is_in_substitution && shell.subshell == 0;
    // A=1 srun: this command alone has it.
    const bool is_for_command = !shell.words.empty() && shell.words[0].text != "export" &&
                                shell.words[0].text != "declare" && shell.words[0].text != "readonly" &&
                                shell.words[0].text != "local" && shell.words[0].text != "typeset";
    if (is_for_command) return;
    for (const auto& assignment : shell.assignments) {
      auto value = assignment.is_array ? std::nullopt : expand(assignment.value, values_);
      if (value && assignment.is_appended) {
        const auto before = values_.find(assignment.name);
        value = before == values_.end() ? std::nullopt : std::optional(before->second + *value);
      }
      if (value && is_certain && value->size() < 4096) {
        values_[assignment.name] = *value;
      } else {
        values_.erase(assignment.name);
      }
    }
    if (shell.words.empty()) return;
    if (shell.words[0].text == "unset" || shell.words[0].text == "read" || shell.words[0].text == "printf") {
      for (const auto& word : shell.words) values_.erase(word.text);
    }
    if (shell.words[0].text == "source" || shell.words[0].text == "." || shell.words[0].text == "eval") values_.clear();
  }

  void add(const ShellCommand& shell) {
    Command command;
    command.shell = &shell;
    for (const auto& word : shell.words) {
      const auto value = expand(word, values_);
      if (!value) {
        command.words.push_back(word);
      } else if (word.is_known() || word.is_quoted) {
        command.words.push_back({*value, word.line});
      } else {
        for (const auto part : words_of(*value)) command.words.push_back({std::string(part), word.line});
      }
    }
    if (command.words.empty()) return;
    const auto first = static_cast<std::ptrdiff_t>(num_wrapper_words(command.words));
    command.words.erase(command.words.begin(), command.words.begin() + first);
    command.name = base_name(command.words[0].text);
    if (command.name == "srun" || command.name == "sbatch" || command.name == "salloc") {
      const std::vector<OptionWord> rest(command.words.begin() + 1, command.words.end());
      command.options = parse_options(command.name == "srun"     ? kSrun
                                      : command.name == "sbatch" ? kSbatch
                                                                 : kSalloc,
                                      rest);
      command.program_at = 1 + command.options.num_used;
      command.is_het = std::any_of(rest.begin(), rest.end(), [](const auto& word) { return word.text == ":"; });
    }
    script_.commands.push_back(std::move(command));
  }

  Script& script_;
  Values values_;
};

/// The variables that Slurm sets in the script, where the request determines them.
Values job_variables(const Request& job) {
  Values values;
  const auto layout = layout_of(job);
  const auto set = [&](const char* name, const std::optional<int64_t>& number) {
    if (number) values[name] = std::to_string(*number);
  };
  set("SLURM_NNODES", layout.nodes);
  set("SLURM_JOB_NUM_NODES", layout.nodes);
  set("SLURM_NTASKS", job.has("ntasks") || job.has("ntasks-per-node") ? layout.ntasks : std::nullopt);
  set("SLURM_NPROCS", job.has("ntasks") ? layout.ntasks : std::nullopt);
  set("SLURM_NTASKS_PER_NODE", job.ntasks_per_node());
  set("SLURM_CPUS_PER_TASK", job.count("cpus-per-task"));
  set("SLURM_GPUS_ON_NODE", layout.gpus_per_node);
  // These are the texts of the options, "a100:4" too (src/common/env.c, set_env_from_opts).
  for (const auto& [name, option] : {std::pair{"SLURM_GPUS_PER_NODE", "gpus-per-node"},
                                     {"SLURM_GPUS", "gpus"},
                                     {"SLURM_GPUS_PER_TASK", "gpus-per-task"}}) {
    if (job.gpus(option)) values[name] = job.value(option);
  }
  return values;
}

void add_options(ParsedOptions& options, const ParsedOptions& more) {
  options.given.insert(options.given.end(), more.given.begin(), more.given.end());
  options.problems.insert(options.problems.end(), more.problems.begin(), more.problems.end());
  options.has_unknown |= more.has_unknown;
}

void read_requests(Script& script, const std::vector<OptionWord>& extra) {
  std::vector<std::vector<OptionWord>> words(1);
  for (const auto& directive : script.directives) {
    if (directive.is_late) continue;
    if (directive.is_component) words.emplace_back();
    for (const auto& word : directive.words) words.back().push_back({word, directive.line});
  }
  for (const auto& component : words) {
    auto parsed = parse_options(kSbatch, component);
    std::vector<OptionWord> leftovers;
    constexpr size_t kMostLeftovers = 64;  // each one copies the words after it
    for (size_t at = parsed.num_used; at < component.size() && leftovers.size() < kMostLeftovers;) {
      leftovers.push_back(component[at]);
      const auto line = component[at].line;
      while (at < component.size() && component[at].line == line) ++at;
      const auto more = parse_options(kSbatch, {component.begin() + static_cast<std::ptrdiff_t>(at), component.end()});
      add_options(parsed, more);
      at += more.num_used;
    }
    script.leftovers.push_back(std::move(leftovers));
    if (script.components.empty() && !extra.empty()) {
      add_options(parsed, parse_options(kSbatch, extra));
    }
    script.components.emplace_back(parsed);
  }
}

void find_texts(Script& script) {
  script.is_in_text.assign(script.lines.size(), false);
  const auto mark = [&](int64_t first, int64_t last) {
    for (auto line = std::max<int64_t>(first, 1); line <= last && line <= std::ssize(script.lines); ++line) {
      script.is_in_text[static_cast<size_t>(line - 1)] = true;
    }
  };
  for (const auto& document : script.shell.here_documents) {
    mark(document.first_line, document.first_line + std::count(document.text.begin(), document.text.end(), '\n') - 1);
  }
  for (const auto& string : script.shell.strings) mark(string.first, string.last);
}

}  // namespace

size_t num_wrapper_words(const std::vector<OptionWord>& words) {
  size_t at = 0;
  while (at + 1 < words.size()) {
    const auto& text = words[at].text;
    const bool is_assignment = text.find('=') < text.find_first_of("/-");  // A=1
    const auto* const wrapper = std::ranges::find(kWrappers, base_name(text), &Wrapper::name);
    if (!is_assignment && wrapper == std::end(kWrappers)) break;
    ++at;
    if (is_assignment) continue;
    while (at + 1 < words.size() && words[at].text.starts_with("-")) {
      const auto& option = words[at].text;
      at += option.size() == 2 && wrapper->letters.find(option[1]) != std::string_view::npos ? 2 : 1;
    }
    at += wrapper->num_operands;
  }
  return std::min(at, words.size() - 1);
}

Directive read_directive(std::string_view text, int64_t line) {
  Directive result{line, std::string(text), {}, false, 0, false, is_component_word(text)};
  size_t i = 0;
  if (result.is_component) {
    while (i < text.size() && is_space(text[i])) ++i;
    while (i < text.size() && !is_space(text[i])) ++i;
  }
  while (i < text.size()) {
    while (i < text.size() && is_space(text[i])) ++i;
    if (i >= text.size() || text[i] == '#') break;
    std::string word;
    char quote = 0;
    bool is_cut = false, is_backslash_alone = false;
    while (i < text.size() && (quote != 0 || !is_space(text[i]))) {
      const char c = text[i];
      if (c == '\\' && quote == 0 && i + 1 < text.size() && is_space(text[i + 1])) {
        // A backslash does not keep a space; one alone ends the options of the line.
        if (word.empty()) return result;
        ++i;
        break;
      }
      if (c == '\\') {
        if (i + 1 < text.size()) word += text[i + 1];
        is_backslash_alone = i + 1 == text.size() && word.empty();  // sbatch drops it
        i += 2;
        continue;
      }
      if (quote != 0 && c == quote) {
        quote = 0;
      } else if (quote == 0 && (c == '"' || c == '\'')) {
        quote = c;
      } else if (quote == 0 && c == '#') {
        is_cut = true;
        break;
      } else {
        word += c;
      }
      ++i;
    }
    if (quote != 0) result.unmatched_quote = quote;
    if (!is_backslash_alone) result.words.push_back(word);
    if (is_cut) {
      result.has_hash = true;
      break;
    }
  }
  return result;
}

Script read_script(std::string path, std::string text, const std::vector<OptionWord>& extra) {
  Script script;
  script.path = std::move(path);
  script.text = std::move(text);
  for (const auto line : lines_of(script.text)) {
    script.lines.emplace_back(line.ends_with('\r') ? line.substr(0, line.size() - 1) : line);
  }
  script.is_shell = script.lines.empty() || names_shell(script.lines[0]);
  std::string readable;
  for (const auto& line : script.lines) readable += line + '\n';
  if (script.is_shell) script.shell = read_shell(readable);
  find_texts(script);
  for (size_t i = 0; i < script.lines.size(); ++i) {
    const auto number = static_cast<int64_t>(i) + 1;
    const std::string_view line = script.lines[i];
    if (line.starts_with("#SBATCH")) {
      if (script.is_in_text[i] && script.first_command_line != 0) continue;
      script.directives.push_back(read_directive(line.substr(7), number));
      script.directives.back().is_late = script.first_command_line != 0;
      continue;
    }
    const auto begin = line.find_first_not_of(" \t\r\v\f");
    if (script.first_command_line == 0 && begin != line.npos && line[begin] != '#') script.first_command_line = number;
  }
  read_requests(script, extra);
  if (script.is_shell) Evaluator(script, script.is_het() ? Values{} : job_variables(script.job())).run();
  return script;
}

Script read_command_line(const std::vector<std::string>& words) {
  Script script;
  script.components.emplace_back();
  script.leftovers.emplace_back();
  if (words.empty()) return script;
  Command command;
  command.words = option_words(words);
  command.name = base_name(words[0]);
  const auto program = command.name == "srun" ? kSrun : command.name == "salloc" ? kSalloc : kSbatch;
  std::vector<OptionWord> rest(command.words.begin() + 1, command.words.end());
  const auto colon = std::find_if(rest.begin(), rest.end(), [](const OptionWord& word) { return word.text == ":"; });
  command.is_het = colon != rest.end();
  rest.erase(colon, rest.end());
  command.options = parse_options(program, rest);
  command.program_at = 1 + command.options.num_used;
  script.components.front() = Request(command.options);
  script.commands.push_back(std::move(command));
  return script;
}

}  // namespace yoke::slurm::check
