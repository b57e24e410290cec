// yoke/slurm/check/shell.h -- reads scripts of sh and bash: commands, words and variables with their lines. Pure.
//
// The reader is tolerant: it never fails, and what it does not understand it takes as words. It is no shell parser;
// shellcheck finds mistakes of the shell itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/slurm/words/options.h"

namespace yoke::slurm::check {

/// A use of a variable, such as $NAME or ${NAME:-1}.
struct VariableUse {
  std::string name;
  int64_t line = 1;
  bool has_default = false;  ///< ${NAME:-x}, ${NAME:+x} and the like: an unset variable is expected.
  bool is_cut = false;       ///< ${NAME##*:}, ${NAME%%x}, ${NAME/x/y} and the like: a part of the value.
};

/// A word without its quotes. Variables and $(...) stay as they are written; those that the shell expands are parts.
struct Word : OptionWord {
  bool is_quoted = false;  ///< Some part has quotes.
};

struct Assignment {
  std::string name;
  Word value;
  int64_t line = 1;
  bool is_appended = false;  ///< NAME+=value
  bool is_array = false;
};

/// A simple command: `A=1 srun ./train >log &`.
struct ShellCommand {
  std::vector<Assignment> assignments;
  std::vector<Word> words;
  std::vector<Word> redirections;  ///< The files alone.
  int64_t line = 1;
  bool is_background = false;
  bool is_in_loop = false;
  bool is_in_condition = false;  ///< In if, case, or after && and ||.
  bool is_in_function = false;
  bool is_in_substitution = false;  ///< $(...), `...`, <(...)
  int64_t subshell = 0;             ///< Depth of ( ... ).

  /// The first word, without folders; empty if there are only assignments.
  std::string name() const;
};

struct HereDocument {
  int64_t first_line = 1;
  std::string text;
  bool is_expanded = true;  ///< The delimiter has no quotes.
};

/// Lines that begin within quotes: from the second to the last line of a string.
struct StringLines {
  int64_t first = 1, last = 1;
};

struct ShellText {
  std::vector<ShellCommand> commands;  ///< In the order of their ends.
  std::vector<HereDocument> here_documents;
  std::vector<StringLines> strings;
  std::vector<VariableUse> uses;      ///< All that the shell of the script expands.
  std::vector<std::string> assigned;  ///< Names that the script sets in any way.
  bool has_source = false;            ///< `source`, `.` or `eval`: other variables may be set.
};

ShellText read_shell(std::string_view text);

}  // namespace yoke::slurm::check
