// yoke/slurm/check/script.h -- a batch script: what sbatch reads in it, and what its shell will start. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/slurm/check/shell.h"
#include "yoke/slurm/words/options.h"
#include "yoke/slurm/words/request.h"

namespace yoke::slurm::check {

/// A line that begins with #SBATCH.
struct Directive {
  int64_t line = 1;
  std::string text;                ///< After "#SBATCH".
  std::vector<std::string> words;  ///< As sbatch splits them.
  bool is_late = false;            ///< After the first command: sbatch does not read it.
  char unmatched_quote = 0;
  bool has_hash = false;      ///< A # within a word, which cuts it.
  bool is_component = false;  ///< "hetjob": the next component of a heterogeneous job begins.
};

/// Splits the text of a directive as sbatch does: quotes, backslashes, comments after #.
Directive read_directive(std::string_view text, int64_t line);

/// A command of the script with variables replaced where they are known.
struct Command {
  const ShellCommand* shell = nullptr;
  std::vector<OptionWord> words;
  std::string name;       ///< The first word without folders; "srun" for $SRUN too if it is known.
  size_t program_at = 0;  ///< For srun: the first word of the program that it starts; for others 0.
  ParsedOptions options;  ///< Of srun, sbatch and salloc.
  bool is_het = false;    ///< srun ... : ...
};

struct Script {
  std::string path;
  std::string text;
  std::vector<std::string> lines;  ///< Without line ends.
  bool is_shell = true;            ///< The interpreter is a shell whose text we read.
  std::vector<Directive> directives;
  /// The requests of a heterogeneous job; one for other jobs. From the directives that sbatch reads.
  std::vector<Request> components;
  /// For each component, the first word of each line that is no option: sbatch refuses it, and reads no further. The
  /// options of later lines are in `components` all the same, since they are there once the word is mended.
  std::vector<std::vector<OptionWord>> leftovers;
  int64_t first_command_line = 0;  ///< 0: there is none.
  std::vector<bool> is_in_text;    ///< For each line, whether it begins within a here-document or a string.
  ShellText shell;
  std::vector<Command> commands;

  const Request& job() const { return components.front(); }
  bool is_het() const { return components.size() > 1; }
};

/// `extra` is added to the options of the first component, as the command line of sbatch is.
Script read_script(std::string path, std::string text, const std::vector<OptionWord>& extra = {});

/// The number of words before the program that wrappers start: those of `env A=1`, `timeout 60` and `sudo -u me`.
/// REQUIRES: `words` is not empty.
size_t num_wrapper_words(const std::vector<OptionWord>& words);

/// A command line without a script: `srun -n2 ./train` becomes a command, `sbatch -N2 job.sh` a request.
Script read_command_line(const std::vector<std::string>& words);

}  // namespace yoke::slurm::check
