// yoke/cli/help/complete.h -- finds the words that may complete a command line.
//
// The completion scripts of all shells (shells.cpp) ask `yoke complete`. They complete only file names and the
// arguments of other programs themselves.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/cli/help/description.h"

namespace yoke::cli {

struct CompletionWord {
  std::string word;
  std::string text = {};  ///< A one-line description of the word; may be empty.

  bool operator==(const CompletionWord&) const = default;
};

struct Completion {
  enum class Kind {
    kWords,    ///< One of `words`, which may be empty.
    kFiles,    ///< A file name, or `--option=VALUE` with a file name as value.
    kFolders,  ///< A folder name, or `--option=VALUE` with a folder name as value.
    kProgram,  ///< The words from `program_at` on are the command line of a different program.
  };
  Kind kind = Kind::kWords;
  std::vector<CompletionWord> words = {};
  size_t program_at = 0;

  bool operator==(const Completion&) const = default;
};

/// Sources of candidates that are not in the command tree. complete() calls only the sources that it needs.
struct CompletionSources {
  std::function<std::vector<CompletionWord>()> jobs, recipes, external_commands;
};

/// `words` follow `yoke`; the last one is being typed and may be empty. Its beginning only decides which candidates are
/// returned: options, other words or the values of "--option=". The shell then removes candidates that do not match the
/// beginning. Has no side effects except those of the sources.
Completion complete(const CommandDescription& root, const std::vector<std::string>& words,
                    const CompletionSources& sources);

/// The output of `yoke complete`: the kind ("words", "files", "folders", "program N"), then lines "WORD<TAB>TEXT".
std::string to_text(const Completion& completion);

/// Returns the completion script of a shell. REQUIRES: `shell` is "bash", "zsh" or "fish".
std::string completion_script(std::string_view shell);

}  // namespace yoke::cli
