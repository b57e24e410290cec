#include "yoke/cli/help/complete.h"

#include <fmt/format.h>

#include <algorithm>

#include "yoke/cli/help/words.h"

namespace yoke::cli {
namespace {

using WordList = std::vector<std::string>;
using CompletionWords = std::vector<CompletionWord>;

CompletionWords words_of_commands(const CommandDescription& root, const CompletionSources& sources) {
  CompletionWords result;
  for (const auto& command : root.commands) result.push_back({command.name, command.text});
  for (auto& command : sources.external_commands()) result.push_back(std::move(command));
  return result;
}

/// Offers long names if `typed` begins with "--". They have underscores if `typed` has one and the command accepts it.
Completion complete_option(const CommandDescription& command, const std::string& typed) {
  const bool has_underscores = command.starts_program() && typed.starts_with("--") && typed.find('_') != typed.npos;
  Completion result;
  for (const auto& option : command.options) {
    if (option.is_positional || option.is_hidden) continue;
    for (auto name : option.names) {
      if (typed.starts_with("--") && !name.starts_with("--")) continue;
      if (has_underscores) std::replace(name.begin() + 2, name.end(), '-', '_');
      result.words.push_back({std::move(name), option.text});
    }
  }
  return result;
}

/// `prefix` is the part of the word before the value, "--option=".
Completion complete_value(const CommandDescription& root, const OptionDescription& option, const std::string& prefix,
                          const CompletionSources& sources) {
  Completion result;
  if (const auto choices = option.choices(); !choices.empty()) {
    for (const auto& choice : choices) result.words.push_back({prefix + choice});
    return result;
  }
  const auto& kind = option.is_positional ? option.names.front() : option.value;
  if (kind == "FILE" || kind == "PATH" || kind == "MODEL") return {Completion::Kind::kFiles};
  if (kind == "DIR") return {Completion::Kind::kFolders};
  if (kind == "JOB") return {Completion::Kind::kWords, sources.jobs()};
  if (kind == "RECIPE") return {Completion::Kind::kWords, sources.recipes()};
  if (kind == "COMMAND") return {Completion::Kind::kWords, words_of_commands(root, sources)};
  return result;
}

/// The meaning of the words that precede the word being typed.
struct Typed {
  const OptionDescription* waits_for_value = nullptr;  ///< The preceding word, if it is an option that takes a value.
  size_t num_positionals = 0;
  size_t first_positional = 0;  ///< The index of the first positional argument.
  bool options_ended = false;   ///< A "--" was among the words.
};

Typed read_typed(const CommandDescription& command, const WordList& words, size_t end) {
  Typed typed;
  for (size_t i = 1; i < end; ++i) {
    const auto& word = words[i];
    if (!typed.options_ended && word == "--") {
      typed.options_ended = true;
      typed.first_positional = i + 1;
      if (command.starts_program()) return typed;
    } else if (!typed.options_ended && word.size() > 1 && word.front() == '-') {
      const auto name = command.starts_program() ? with_dashes(word) : word;
      const auto* option = command.find_option(name);
      if (option == nullptr || option->value.empty()) continue;
      const bool is_last = i + 1 == end;
      if (is_last) typed.waits_for_value = option;
      const bool has_value = !is_last && !(option->value_is_optional && words[i + 1].starts_with("-"));
      if (has_value) ++i;
    } else {
      if (typed.num_positionals++ == 0) typed.first_positional = i;
      if (command.starts_program()) return typed;
    }
  }
  return typed;
}

Completion complete_positional(const CommandDescription& root, const CommandDescription& command, const WordList& words,
                               const Typed& typed, const CompletionSources& sources) {
  const auto positionals = command.positionals();
  if (positionals.empty()) return {};
  const auto last = words.size() - 1;
  if (command.starts_program()) {
    const bool begins = typed.num_positionals == 0 && (!typed.options_ended || typed.first_positional == last);
    const bool is_program = positionals.front()->names.front() == "PROGRAM";
    if (is_program) return {Completion::Kind::kProgram, {}, begins ? last : typed.first_positional};
    if (!begins) return {Completion::Kind::kFiles};  // arguments of the recipe
  }
  return complete_value(root, *positionals[std::min(typed.num_positionals, positionals.size() - 1)], "", sources);
}

Completion complete_first(const CommandDescription& root, const std::string& word, const CompletionSources& sources) {
  if (word.starts_with("-")) return complete_option(root, word);
  return {Completion::Kind::kWords, words_of_commands(root, sources)};
}

/// Completes the words that name a command and its action, such as "env" in `yoke env create`.
Completion complete_action(const CommandDescription& command, const WordList& words, const CompletionSources& sources) {
  auto result = complete(
      command, {words.begin() + 1, words.end()},
      {.jobs = sources.jobs, .recipes = sources.recipes, .external_commands = [] { return CompletionWords(); }});
  if (result.kind == Completion::Kind::kProgram) ++result.program_at;
  return result;
}

/// Completes as if the command's object, such as "batch" in `yoke tune batch`, were not among the words.
Completion complete_without_object(const CommandDescription& root, WordList words, const CompletionSources& sources) {
  words.erase(words.begin() + 1);
  if (words.size() == 2 && !words[1].starts_with("-")) return {Completion::Kind::kProgram, {}, 2};
  auto result = complete(root, words, sources);
  if (result.kind == Completion::Kind::kProgram) ++result.program_at;
  return result;
}

}  // namespace

Completion complete(const CommandDescription& root, const WordList& words, const CompletionSources& sources) {
  if (words.size() < 2) return complete_first(root, words.empty() ? "" : words.front(), sources);
  if (words.front() == "help") {
    return words.size() == 2 ? Completion{Completion::Kind::kWords, words_of_commands(root, sources)} : Completion{};
  }
  if (words.front().starts_with("-")) return {};
  const auto* command = root.find_command(words.front());
  if (command == nullptr) return {Completion::Kind::kFiles};  // arguments of an external command
  if (!command->commands.empty()) {
    const bool is_action = words.size() == 2 ? !words[1].starts_with("-") : command->find_command(words[1]) != nullptr;
    if (is_action) return complete_action(*command, words, sources);
  }
  if (!command->object.empty()) {
    if (words.size() == 2 && !words[1].starts_with("-")) return {Completion::Kind::kWords, {{command->object}}};
    if (words[1] == command->object && words.size() > 2) return complete_without_object(root, words, sources);
  }
  const auto typed = read_typed(*command, words, words.size() - 1);
  const auto& word = words.back();
  const bool is_positional = typed.options_ended || (command->starts_program() && typed.num_positionals > 0);
  if (is_positional) return complete_positional(root, *command, words, typed, sources);
  if (typed.waits_for_value != nullptr && !(typed.waits_for_value->value_is_optional && word.starts_with("-"))) {
    return complete_value(root, *typed.waits_for_value, "", sources);
  }
  if (!word.starts_with("-")) return complete_positional(root, *command, words, typed, sources);
  const auto equals = word.find('=');
  if (!word.starts_with("--") || equals == word.npos) return complete_option(*command, word);
  const auto name = word.substr(0, equals);
  const auto* option = command->find_option(command->starts_program() ? with_dashes(name) : name);
  if (option == nullptr || option->value.empty()) return {};
  return complete_value(root, *option, name + "=", sources);
}

std::string to_text(const Completion& completion) {
  constexpr const char* kKinds[] = {"words", "files", "folders", "program"};
  std::string text = kKinds[static_cast<int>(completion.kind)];
  if (completion.kind == Completion::Kind::kProgram) text += fmt::format(" {}", completion.program_at);
  text += '\n';
  for (const auto& [word, about] : completion.words) {
    if (word.find_first_of("\t\n") != word.npos) continue;
    text += fmt::format("{}\t{}\n", word, about.substr(0, about.find('\n')));
  }
  return text;
}

}  // namespace yoke::cli
