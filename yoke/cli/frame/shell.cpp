#include "yoke/cli/frame/shell.h"

#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/shell.h"

namespace yoke::cli {

std::string to_shell(const std::vector<device::Assignment>& assignments) {
  std::string text;
  for (const auto& [name, value] : assignments) {
    text += value ? fmt::format("export {}={}\n", name, shell_quoted(*value)) : fmt::format("unset {}\n", name);
  }
  return text;
}

std::string failure_to_shell(int status) {
  return fmt::format("export CUDA_VISIBLE_DEVICES= ROCR_VISIBLE_DEVICES=; (exit {})\n", status);
}

bool is_for_eval(std::string_view command, const std::vector<std::string>& words, bool has_program) {
  const auto has = [&](std::string_view option) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) { return word.starts_with(option); });
  };
  return command == "claim" && !has_program && !has("--json") && (has("--for") || !has("--explain"));
}

}  // namespace yoke::cli
