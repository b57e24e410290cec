// yoke/cli/help/words.h -- which words belong to a command, and which to the program that it starts.
//
// This is decided before CLI11 sees the words: the program and the words after it must be passed on as they are, even
// if a word looks like an option of yoke.
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
};

/// "--nproc_per_node=a_b" -> "--nproc-per-node=a_b", since torchrun accepts underscores as well as dashes.
std::string with_dashes(std::string word);

/// `own` ends before the first word that is neither an option nor an option's value, or before "--", which is dropped.
/// `takes_value("-n")` tells whether that option of the command has a value. In names of long options, underscores
/// become dashes. "--name=" becomes "--name" and "", because CLI11 would take the next word as its value.
Words split_words(const std::vector<std::string>& words, const std::function<bool(std::string_view)>& takes_value);

/// Finds the first empty value in `words`, and returns its option, such as "--hosts" of {"--hosts", ""} and
/// {"--hosts="}, or "argument" if no option is before the value. Options for which `may_be_empty` is true are skipped.
std::optional<std::string> find_empty_value(const std::vector<std::string>& words,
                                            const std::function<bool(std::string_view)>& may_be_empty);

/// Replaces kill(1)'s "-9", "-KILL" and "-SIGKILL" by "--signal" and "9", "KILL" or "SIGKILL". Stops at a "--".
std::vector<std::string> with_signal_option(const std::vector<std::string>& words);

/// Joins "--option" with the word after it, "--option=--batch-size", because CLI11 takes no value that looks like an
/// option. Stops at a "--".
std::vector<std::string> with_joined_option(const std::vector<std::string>& words);

/// "--wait 10m" -> "--wait=10m"; without a length of time, which begins with a digit, "--wait=forever". Stops at a
/// "--".
std::vector<std::string> with_wait_limit(const std::vector<std::string>& words);

/// "--trace A B" -> "--trace A --trace B", because the first word that is no option begins a program. Stops at a "--".
std::vector<std::string> with_repeated_trace(const std::vector<std::string>& words);

/// Removes "-n V", "-n4" (a number), "--NAME V" and "--NAME=V" from the words before any "--". Returns the last value.
/// Errors  kInvalidArgument: the value is missing.
std::optional<std::string> extract_option(std::vector<std::string>& words, std::string_view short_name,
                                          std::string_view long_name);

}  // namespace yoke::cli
