#include "yoke/tune/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "yoke/base/text.h"

namespace yoke::tune {
namespace {

constexpr std::string_view kPlaceholder = "{}";

}  // namespace

bool has_placeholder(const std::vector<std::string>& argv) {
  return std::ranges::any_of(argv, [](const std::string& word) { return word.find(kPlaceholder) != word.npos; });
}

std::vector<std::string> with_batch(std::vector<std::string> argv, const Handover& handover, int64_t batch) {
  const auto value = std::to_string(batch);
  for (auto& word : argv) {
    for (size_t at = 0; (at = word.find(kPlaceholder, at)) != word.npos; at += value.size()) {
      word.replace(at, kPlaceholder.size(), value);
    }
  }
  if (handover.option.empty()) return argv;
  for (size_t i = 1; i < argv.size(); ++i) {
    if (argv[i].starts_with(handover.option + "=")) {
      argv[i] = handover.option + "=" + value;
      return argv;
    }
    if (argv[i] == handover.option && i + 1 < argv.size()) {
      argv[i + 1] = value;
      return argv;
    }
  }
  argv.push_back(handover.option);
  argv.push_back(value);
  return argv;
}

bool is_out_of_memory(int status, std::string_view output) {
  if (status == 0) return false;
  constexpr std::array kWords = {"OutOfMemoryError", "out of memory",          "MemoryError",   "std::bad_alloc",
                                 "bad allocation",   "can't allocate memory",  "Out of memory", "OUT_OF_MEMORY",
                                 "ENOMEM",           "Cannot allocate memory", "SIGKILL",       "alloc_failed"};
  return status == 128 + SIGKILL ||
         std::ranges::any_of(kWords, [&](std::string_view words) { return output.find(words) != output.npos; });
}

std::string last_lines(std::string_view output, int64_t num_lines) {
  auto lines = lines_of(output);
  std::erase_if(lines, [](std::string_view line) { return words_of(line).empty(); });
  if (std::ssize(lines) > num_lines) lines.erase(lines.begin(), lines.end() - num_lines);
  std::string result;
  for (const auto line : lines) result += fmt::format("  {}\n", fit(printable(line), 200));
  return result;
}

std::string end_of_output(const std::string& program, std::string_view output) {
  const auto lines = last_lines(output, 10);
  if (lines.empty()) return "; it printed nothing";
  return fmt::format("; the last lines of {}:\n{}", printable(program), lines.substr(0, lines.size() - 1));
}

}  // namespace yoke::tune
