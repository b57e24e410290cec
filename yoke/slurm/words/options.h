// yoke/slurm/words/options.h -- the options of sbatch, srun and salloc, and how these programs read them. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/slurm/words/version.h"

namespace yoke::slurm::check {

/// Programs as bits, because most options belong to several.
enum Program : unsigned { kSbatch = 1, kSrun = 2, kSalloc = 4, kAll = 7 };
std::string_view name(Program program);

enum class Value { kNone, kOptional, kRequired };

/// Source  src/common/slurm_opt.c of Slurm 22.05.8 to 26.05.3.
struct OptionSpec {
  std::string_view name;
  char short_name;
  Value value;
  unsigned programs;
  const char* since = "";  ///< The first release that has it; empty: 22.05 or earlier.
  const char* until = "";  ///< The last release that has it; empty: 26.05 has it.
};

/// A word of a command line or of a directive, with the line where it is. It has literal parts, and parts that a shell
/// expands to something that only a run would show.
struct OptionWord {
  struct Part {
    size_t begin = 0, end = 0;
  };
  std::string text;
  int64_t line = 1;
  std::vector<Part> expansions = {};  ///< The parts of `text` that are not literal, in their order.

  bool is_known() const { return expansions.empty(); }
  bool is_literal(size_t at) const;
  void drop_front(size_t num_characters);
};

/// Texts without expansions as words, such as those of a command line that a shell has read.
template <typename Texts>
std::vector<OptionWord> option_words(const Texts& texts) {
  std::vector<OptionWord> words;
  for (const auto& text : texts) words.push_back({.text = std::string(text)});
  return words;
}

struct GivenOption {
  const OptionSpec* spec = nullptr;
  std::string value;
  int64_t line = 1;
  bool has_value = false;
  bool is_known = true;  ///< Of the value.
  std::string written;   ///< "--nodes", "-N", "--parti": as the user wrote it.
};

enum class OptionProblemKind { kUnknown, kOtherProgram, kAmbiguous, kMissingValue, kUnwantedValue };
struct OptionProblem {
  OptionProblemKind kind;
  int64_t line;
  std::string written;
  std::string hint;  ///< kUnknown: the option that it may mean, or empty. kAmbiguous: what it could be. kMissingValue:
                     ///< the next word, or empty.
};

struct ParsedOptions {
  std::vector<GivenOption> given;
  std::vector<OptionProblem> problems;
  size_t num_used = 0;       ///< The words from here on are not options: a script or a program with its arguments.
  bool has_unknown = false;  ///< A variable may hold further options.
};

/// Reads words as getopt_long does, until the first word that is not an option: abbreviations, "-N2", "--nodes=2",
/// "--nodes 2".
ParsedOptions parse_options(Program program, const std::vector<OptionWord>& words);

/// Finds an option by its exact name; null if `program` has none.
const OptionSpec* find_option(Program program, std::string_view name);

/// Whether plugins of known sites add this option (pyxis, shifter, uenv, ...), so that sbatch may accept it.
bool is_plugin_option(std::string_view name);

/// Removes the first word from `list`, whose words single spaces separate, and returns it. REQUIRES: `list` is not
/// empty.
constexpr std::string_view next_word(std::string_view& list) {
  const auto word = list.substr(0, list.find(' '));
  list.remove_prefix(std::min(word.size() + 1, list.size()));
  return word;
}

/// Whether `word` is one of the words of `list`, which spaces separate.
bool has_word(std::string_view list, std::string_view word);

/// Whether a release has the option.
bool has_option(const OptionSpec& spec, const Version& version);

}  // namespace yoke::slurm::check
