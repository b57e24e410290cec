#include "yoke/cli/frame/shell.h"

#include <fmt/format.h>

#include "yoke/base/shell.h"

namespace yoke::cli {

std::string to_shell(const std::vector<device::Assignment>& assignments) {
  std::string text;
  for (const auto& [name, value] : assignments) {
    text += value ? fmt::format("export {}={}\n", name, shell_quoted(*value)) : fmt::format("unset {}\n", name);
  }
  return text;
}

}  // namespace yoke::cli
