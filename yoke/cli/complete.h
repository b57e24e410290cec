// yoke/cli/complete.h -- what may stand at the end of a command line that is being typed.
//
// One answer for all shells: their scripts (shells.cpp) ask `yoke complete`, and do what only a shell can, which is to
// complete file names and the words of other commands.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "yoke/cli/description.h"

namespace yoke::cli {

struct CompletionWord {
  std::string word;
  std::string text = {};  ///< One line about it; may be empty.

  bool operator==(const CompletionWord&) const = default;
};

struct Completion {
  enum class Kind {
    kWords,    ///< `words`, and nothing if there are none.
    kFiles,    ///< File names; of `--option=VALUE` the value is one.
    kFolders,  ///< The same, of folders alone.
    kProgram,  ///< The words from `program_at` on are a command line of their own.
  };
  Kind kind = Kind::kWords;
  std::vector<CompletionWord> words = {};
  size_t program_at = 0;

  bool operator==(const Completion&) const = default;
};

/// What the tree does not know. Asked only when it is needed.
struct CompletionSources {
  std::function<std::vector<CompletionWord>()> jobs, recipes, external_commands;
};

/// For the last of `words`, which follow `yoke` and of which the last one may be empty. The candidates do not depend on
/// what is typed of it, except for "--option=" and the choice between options and other words: shells filter, each in
/// its own way. Pure but for the sources.
Completion complete(const CommandDescription& root, const std::vector<std::string>& words,
                    const CompletionSources& sources);

/// What `yoke complete` prints: the kind ("words", "files", "folders", "program N"), then lines "WORD<TAB>TEXT".
std::string to_text(const Completion& completion);

/// Completion scripts, whole.
std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace yoke::cli
