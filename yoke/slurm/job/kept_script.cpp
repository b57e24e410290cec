#include "yoke/slurm/job/kept_script.h"

#include <algorithm>

#include "yoke/base/environment.h"
#include "yoke/base/text.h"
#include "yoke/slurm/job/job.h"
#include "yoke/slurm/words/options.h"

namespace yoke::slurm {
namespace {

constexpr std::string_view kArrayDirective = "#SBATCH --array=";

/// Where the directive's line begins. npos if there is none before the first command, where Slurm stops to look.
size_t array_directive_at(std::string_view script) {
  for (size_t at = 0; at < script.size();) {
    const auto line = script.substr(at, script.find('\n', at) - at);
    if (line.starts_with(kArrayDirective)) return at;
    const auto first = line.find_first_not_of(" \t");
    if (first != line.npos && line[first] != '#') break;
    at += line.size() + 1;
  }
  return script.npos;
}

}  // namespace

std::optional<std::string> array_of_script(std::string_view script) {
  const auto at = array_directive_at(script);
  if (at == script.npos) return std::nullopt;
  const auto words = words_of(script.substr(at, script.find('\n', at) - at).substr(kArrayDirective.size()));
  return words.empty() ? std::nullopt : std::optional(std::string(words.front()));
}

bool may_have_task(const std::string& value, int64_t task) {
  const auto tasks = array_tasks_of(Job{.array_task = value});
  return tasks.empty() || std::ranges::find(tasks, task) != tasks.end();
}

std::string script_of_task(std::string_view script, int64_t task) {
  const auto at = array_directive_at(script);
  if (at == script.npos) return std::string(script);
  const auto end = std::min(script.find('\n', at), script.size());
  return std::string(script.substr(0, at)) + std::string(kArrayDirective) + std::to_string(task) +
         std::string(script.substr(end));
}

bool is_note_of(int64_t submitted, std::string_view folder, const std::vector<Account>& accounts) {
  constexpr Seconds kClocks{600};
  if (accounts.empty() || !accounts.front().job.submitted) return true;
  const auto& job = accounts.front().job;
  return *job.submitted <= Time(Seconds(submitted)) + kClocks || job.folder == folder;
}

bool is_from_standard_input(std::string_view submit_line) {
  auto words = check::option_words(words_of(submit_line));
  if (words.empty() || base_name(words.front().text) != "sbatch") return false;
  words.erase(words.begin());
  const auto parsed = check::parse_options(check::kSbatch, words);
  const auto is_wrap = [](const check::GivenOption& option) { return std::string_view(option.spec->name) == "wrap"; };
  return parsed.num_used >= words.size() && std::ranges::none_of(parsed.given, is_wrap);
}

}  // namespace yoke::slurm
