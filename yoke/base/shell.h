// yoke/base/shell.h -- words for the command lines and scripts of a shell.
#pragma once

#include <string>
#include <string_view>

namespace yoke {

/// `text` in single quotes, as one word for sh and csh.
std::string shell_quoted(std::string_view text);

/// `text` as one word for sh and zsh, without quotes where none are needed: for commands that a message shows.
std::string shell_word(std::string_view text);

}  // namespace yoke
