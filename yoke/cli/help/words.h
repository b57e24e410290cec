// yoke/cli/help/words.h -- which words belong to a command, and which to the program that it starts.
//
// This is decided before CLI11 sees the words: everything from the program on must pass unread, even if it looks like
// an option of yoke.
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

/// "--nproc_per_node=a_b" -> "--nproc-per-node=a_b": torchrun accepts both.
std::string with_dashes(std::string word);

/// `own` ends before the first word that is neither an option nor an option's value, or before "--" (dropped).
/// `takes_value("-n")` tells whether that option of the command has a value. Names of long options get dashes.
/// "--name=" becomes "--name" and "", because CLI11 would take the next word as its value.
Words split_words(const std::vector<std::string>& words, const std::function<bool(std::string_view)>& takes_value);

/// The option of the first empty value in `words`, such as "--hosts" of {"--hosts", ""} and {"--hosts="}, or "argument"
/// if there is no option before it. Options for which `may_be_empty` is true are skipped.
std::optional<std::string> find_empty_value(const std::vector<std::string>& words,
                                            const std::function<bool(std::string_view)>& may_be_empty);

/// Up to a "--", replaces "-9", "-KILL" and "-SIGKILL" of kill(1) by "--signal" and "9", "KILL" or "SIGKILL".
std::vector<std::string> with_signal_option(const std::vector<std::string>& words);

/// Removes "-n V", "-n4" (a number), "--NAME V" and "--NAME=V" from `words`, up to a "--", and returns the last value.
/// Errors  kInvalidArgument: the value is missing.
std::optional<std::string> extract_option(std::vector<std::string>& words, std::string_view short_name,
                                          std::string_view long_name);

}  // namespace yoke::cli
