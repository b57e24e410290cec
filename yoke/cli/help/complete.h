// yoke/cli/help/complete.h -- what may stand at the end of a command line that is being typed.
//
// All shells get the same answer: their scripts (shells.cpp) ask `yoke complete`, and do only what a shell must do
// itself, which is to complete file names and the words of other commands.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "yoke/cli/help/description.h"

namespace yoke::cli {

struct CompletionWord {
  std::string word;
  std::string text = {};  ///< One line about it; may be empty.

  bool operator==(const CompletionWord&) const = default;
};

struct Completion {
  enum class Kind {
    kWords,    ///< One of `words`; nothing if there are none.
    kFiles,    ///< A file name; in `--option=VALUE` the value is one.
    kFolders,  ///< The name of a folder, likewise.
    kProgram,  ///< The words from `program_at` on are a command line of their own.
  };
  Kind kind = Kind::kWords;
  std::vector<CompletionWord> words = {};
  size_t program_at = 0;

  bool operator==(const Completion&) const = default;
};

/// Candidates that the command tree does not know. A source is called only if it is needed.
struct CompletionSources {
  std::function<std::vector<CompletionWord>()> jobs, recipes, external_commands;
};

/// Completes the last of `words`, which follow `yoke`; it may be empty. The part of that word that is already typed
/// only decides between options, other words and the value of "--option="; each shell then filters the candidates by
/// it. Pure except for the sources.
Completion complete(const CommandDescription& root, const std::vector<std::string>& words,
                    const CompletionSources& sources);

/// The output of `yoke complete`: the kind ("words", "files", "folders", "program N"), then lines "WORD<TAB>TEXT".
std::string to_text(const Completion& completion);

/// Completion scripts.
std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace yoke::cli
