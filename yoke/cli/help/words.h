// yoke/cli/help/words.h -- divides words between a command and the program that the command starts.
//
// The words are divided before CLI11 parses them: the program gets its words unchanged, even those that look like
// options of yoke.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::cli {

struct Words {
  std::vector<std::string> own;
  std::vector<std::string> rest;
  bool has_dashes = false;  ///< Whether a "--" was between them.
};

/// What split_words() must know about the options of a command.
struct OptionNames {
  std::function<bool(std::string_view)> takes_value;  ///< Whether "-n" has a value.
  /// Returns "--redirects" for "--redirect".
  std::function<std::string(std::string_view)> whole_name = [](std::string_view name) { return std::string(name); };
  /// Whether "--wait" may have a length of time, which begins with a digit; without one it becomes "--wait=forever".
  std::function<bool(std::string_view)> has_optional_time = [](std::string_view /*name*/) { return false; };
};

/// "--nproc_per_node=a_b" -> "--nproc-per-node=a_b", because torchrun accepts underscores as well as dashes.
std::string with_dashes(std::string word);

/// `own` ends before the first word that is neither an option nor an option's value, or before "--", which is dropped.
/// In names of long options, underscores become dashes, and abbreviated names become whole. "--name=" becomes "--name"
/// and "", because CLI11 would take the next word as its value.
Words split_words(const std::vector<std::string>& words, const OptionNames& names);

/// Finds the first empty value in `words`. Returns its option, such as "--hosts" for {"--hosts", ""} and {"--hosts="},
/// or "argument" if no option precedes the value. Skips options for which `may_be_empty` returns true.
std::optional<std::string> find_empty_value(const std::vector<std::string>& words,
                                            const std::function<bool(std::string_view)>& may_be_empty);

/// Replaces kill(1)'s "-9", "-KILL" and "-SIGKILL" by "--signal" and "9", "KILL" or "SIGKILL", unless it is the
/// value of an option. Stops at a "--".
std::vector<std::string> with_signal_option(const std::vector<std::string>& words);

/// Joins "--option" and the word after it into "--option=--batch-size", because CLI11 takes a word that begins with a
/// dash as an option, not as a value. Stops at a "--".
std::vector<std::string> with_joined_option(const std::vector<std::string>& words);

/// "--trace A B" -> "--trace A --trace B", because B would otherwise begin a program; "--compare A B", too. Stops at a
/// "--".
std::vector<std::string> with_repeated_paths(const std::vector<std::string>& words);

/// Removes "-n V", "-n4" (a number), "--NAME V" and "--NAME=V", up to a "--". Returns the last value V.
/// Errors  kInvalidArgument: the value is missing.
std::optional<std::string> extract_option(std::vector<std::string>& words, std::string_view short_name,
                                          std::string_view long_name);

}  // namespace yoke::cli
