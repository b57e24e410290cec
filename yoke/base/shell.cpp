#include "yoke/base/shell.h"

namespace yoke {

std::string shell_quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char letter : text) quoted += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return quoted + "'";
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:+@%,";
  // To zsh, a word that begins with = names a program.
  const bool is_plain = !text.empty() && text[0] != '=' && text.find_first_not_of(kPlain) == text.npos;
  return is_plain ? std::string(text) : shell_quoted(text);
}

}  // namespace yoke
