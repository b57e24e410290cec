#include "yoke/cli/frame/shell.h"

#include <fmt/format.h>

namespace yoke::cli {

std::string shell_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

std::string to_shell(const std::vector<device::Assignment>& assignments) {
  std::string text;
  for (const auto& [name, value] : assignments) {
    text += value ? fmt::format("export {}={}\n", name, shell_quoted(*value)) : fmt::format("unset {}\n", name);
  }
  return text;
}

}  // namespace yoke::cli
