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
  std::string text = {};  ///< A line that explains the word; may be empty.

  bool operator==(const CompletionWord&) const = default;
};

struct Completion {
  enum class Kind {
    kWords,    ///< One of `words`; if there are none, nothing can be completed.
    kFiles,    ///< A file name, or `--option=VALUE` with a file name as value.
    kFolders,  ///< A folder name, or `--option=VALUE` with a folder name as value.
    kProgram,  ///< The words from `program_at` on are the command line of a different program.
  };
  Kind kind = Kind::kWords;
  std::vector<CompletionWord> words = {};
  size_t program_at = 0;

  bool operator==(const Completion&) const = default;
};

/// Candidates that are not in the command tree. A source is called only if it is needed.
struct CompletionSources {
  std::function<std::vector<CompletionWord>()> jobs, recipes, external_commands;
};

/// Completes the last of `words`, which follow `yoke`; it may be empty. The part of this word that is already typed
/// only decides whether options, other words or the values of "--option=" are wanted; the shell then filters the
/// candidates by it. Pure except for the sources.
Completion complete(const CommandDescription& root, const std::vector<std::string>& words,
                    const CompletionSources& sources);

/// The output of `yoke complete`: the kind ("words", "files", "folders", "program N"), then lines "WORD<TAB>TEXT".
std::string to_text(const Completion& completion);

/// The completion script of each shell.
std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace yoke::cli
