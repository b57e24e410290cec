// yoke/cli/words.h -- which words of a command line are the command's own, and which the program's that it starts.
//
// Done before CLI11 sees them: everything from the program on must pass unread, even what looks like our options.
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
/// `takes_value("-n")`: whether that option of the command has one. Names of long options get dashes. "--name=" becomes
/// "--name" and "", for CLI11 would take the next word as its value.
Words split_words(const std::vector<std::string>& words, const std::function<bool(std::string_view)>& takes_value);

/// The option of the first empty value in `words`, such as "--hosts" of {"--hosts", ""} and {"--hosts="}, or "argument"
/// where there is no option before it. Values of options for which `may_be_empty` are left out.
std::optional<std::string> find_empty_value(const std::vector<std::string>& words,
                                            const std::function<bool(std::string_view)>& may_be_empty);

/// "-9", "-KILL" and "-SIGKILL" as kill(1) has them become "--signal" and "9", up to a "--".
std::vector<std::string> with_signal_option(const std::vector<std::string>& words);

/// Removes "-n V", "-n4" (a number), "--NAME V" and "--NAME=V" from `words`, up to a "--"; the last value, if there was
/// any. Errors  kInvalidArgument when the value is missing.
std::optional<std::string> extract_option(std::vector<std::string>& words, std::string_view short_name,
                                          std::string_view long_name);

}  // namespace yoke::cli
