#include "yoke/slurm/words/answers.h"

#include "yoke/base/text.h"

namespace yoke::slurm {

std::string_view field_of(std::string_view line, std::string_view name) {
  for (const auto word : words_of(line)) {
    if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=') {
      return word.substr(name.size() + 1);
    }
  }
  return {};
}

std::string_view setting_of(std::string_view config, std::string_view name) {
  for (const auto line : lines_of(config)) {
    const auto words = words_of(line);
    if (words.size() >= 3 && words[0] == name && words[1] == "=") return words[2];
  }
  return {};
}

std::string without_sockets(std::string_view gres) {
  std::string text;
  int depth = 0;
  for (const char c : gres) {
    if (c == '(') ++depth;
    if (depth == 0) text += c;
    if (c == ')') --depth;
  }
  return text;
}

}  // namespace yoke::slurm
