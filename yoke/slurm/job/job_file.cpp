#include "yoke/slurm/job/job_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::slurm {

bool JobRange::contains(const Job& job) const {
  if (job.array != number) return false;
  return std::ranges::any_of(array_tasks_of(job),
                             [&](int64_t task) { return std::ranges::binary_search(tasks, task); });
}

std::optional<JobRange> parse_job_range(std::string_view text) {
  const auto bracket = text.find("_[");
  if (bracket == text.npos || !text.ends_with(']')) return std::nullopt;
  const auto number = parse_int(text.substr(0, bracket));
  if (!number || *number <= 0) return std::nullopt;
  const Job job{.array = number, .array_task = std::string(text.substr(bracket + 2, text.size() - bracket - 3))};
  JobRange range{*number, array_tasks_of(job)};
  std::ranges::sort(range.tasks);
  const auto repeated = std::ranges::unique(range.tasks);
  range.tasks.erase(repeated.begin(), repeated.end());
  return range.tasks.empty() ? std::nullopt : std::optional(range);
}

std::string to_text(const JobTarget& target) {
  return target.range ? fmt::format("{}_[{}]", target.name.number, to_task_list(target.range->tasks))
                      : to_text(target.name);
}

std::vector<JobTarget> parse_job_targets(std::string_view text) {
  constexpr int64_t kMostJobs = 1000;
  std::vector<JobTarget> targets;
  for (size_t at = 0; at <= text.size();) {
    auto end = text.find(',', at);
    if (const auto bracket = text.find('[', at); bracket < end) end = text.find(',', text.find(']', bracket));
    const auto part = text.substr(at, end == text.npos ? text.npos : end - at);
    at = end == text.npos ? text.size() + 1 : end + 1;
    const auto dash = part.find('-');
    const auto first = dash == part.npos ? std::nullopt : parse_int(part.substr(0, dash));
    const auto last = dash == part.npos ? std::nullopt : parse_int(part.substr(dash + 1));
    if (auto range = parse_job_range(part)) {
      targets.push_back({{range->number, std::nullopt}, std::move(range)});
    } else if (const auto name = parse_job_name(part)) {
      targets.push_back({*name, std::nullopt});
    } else if (first && last && 0 < *first && *first <= *last && *last - *first < kMostJobs) {
      for (auto number = *first; number <= *last; ++number) {
        targets.push_back({{number, std::nullopt}, std::nullopt, true});
      }
    } else {
      return {};
    }
  }
  return targets;
}

std::vector<JobTarget> require_job_targets(std::string_view text) {
  if (auto targets = parse_job_targets(text); !targets.empty()) return targets;
  throw Error(ErrorCode::kInvalidArgument,
              "'{}' is no job of Slurm; give a number, as 123, 123_4, '123_[1-4]', 123+1 or 5-7", printable(text));
}

std::vector<JobName> jobs_in_name(std::string_view path) {
  constexpr size_t kMost = 5;
  std::vector<JobName> names;
  const auto add = [&](const JobName& name) {
    if (names.size() < kMost && std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  if (const auto likeliest = job_of_file(path)) add(*likeliest);
  const auto name = base_name(path);
  const auto is_letter = [&](size_t at) {
    return at < name.size() && std::isalpha(static_cast<unsigned char>(name[at])) != 0;
  };
  const auto is_digit = [&](size_t at) {
    return at < name.size() && std::isdigit(static_cast<unsigned char>(name[at])) != 0;
  };
  for (size_t end = name.size(); end > 0;) {
    if (!is_digit(end - 1)) {
      --end;
      continue;
    }
    auto begin = end - 1;
    while (begin > 0 && is_digit(begin - 1)) --begin;
    const bool is_alone = !is_letter(end) && (begin == 0 || !is_letter(begin - 1));
    if (const auto number = parse_int(name.substr(begin, end - begin)); is_alone && number && *number > 0) {
      add({*number, std::nullopt});
    }
    end = begin;
  }
  return names;
}

JobOutputs outputs_of(const std::optional<Job>& job, const std::vector<Account>& accounts) {
  JobOutputs outputs;
  const auto add = [&](std::string_view pattern, const Job& of) {
    if (!pattern.empty()) outputs.paths.push_back(expand_path(pattern, of));
  };
  if (job && !job->out.empty()) {
    add(job->out, *job);
    add(job->err, *job);
    outputs.is_complete = true;
    return outputs;
  }
  if (accounts.empty()) return outputs;
  const auto& account = accounts.back();
  const auto out = output_option(account.submit_line, 'o');
  outputs.is_complete = !out.empty();
  add(out.empty() ? account.job.array ? "slurm-%A_%a.out" : "slurm-%j.out" : out, account.job);
  add(output_option(account.submit_line, 'e'), account.job);
  return outputs;
}

OutputMatch match_output(const std::string& file, const JobOutputs& outputs) {
  if (std::ranges::find(outputs.paths, file) != outputs.paths.end()) return OutputMatch::kIsOutput;
  const bool has_name =
      std::ranges::any_of(outputs.paths, [&](const std::string& path) { return base_name(path) == base_name(file); });
  return has_name || !outputs.is_complete ? OutputMatch::kUnknown : OutputMatch::kOther;
}

}  // namespace yoke::slurm
