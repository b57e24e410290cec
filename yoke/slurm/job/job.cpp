#include "yoke/slurm/job/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/hostlist.h"
#include "yoke/base/json.h"
#include "yoke/base/moment.h"
#include "yoke/base/text.h"

namespace yoke::slurm {
namespace {

/// Slurm writes these words where it has no value.
std::string_view known(std::string_view text) {
  const bool is_empty = text == "(null)" || text == "N/A" || text == "None" || text == "Unknown" || text == "n/a" ||
                        text == "None assigned" || text == "none";
  return is_empty ? std::string_view() : text;
}

std::string text_of(std::string_view text) { return std::string(known(text)); }

int64_t number_of(std::string_view text) { return parse_int(text.substr(0, text.find('-'))).value_or(0); }

void set_array(Job& job, std::string_view array, std::string_view task) {
  job.array = parse_int(array);
  job.array_task = std::string(task);
  const bool is_one = parse_int(task).has_value();
  job.id = is_one ? fmt::format("{}_{}", array, task) : fmt::format("{}_[{}]", array, task);
}

/// Reads "3:0", exit code and signal.
void set_exit(Job& job, std::string_view text) {
  const auto colon = text.find(':');
  if (colon == text.npos) return;
  job.exit_code = static_cast<int>(parse_int(text.substr(0, colon)).value_or(0));
  job.signal = static_cast<int>(parse_int(text.substr(colon + 1)).value_or(0));
}

void set_field(Job& job, std::string_view key, std::string_view value) {
  if (key == "JobState") job.state = value;
  if (key == "Reason") job.reason = text_of(value);
  if (key == "UserId") job.user = value.substr(0, value.find('('));
  if (key == "Partition") job.partition = value;
  if (key == "NodeList") job.node_list = text_of(value);
  if (key == "BatchHost") job.batch_host = text_of(value);
  if (key == "NumNodes") job.num_nodes = number_of(value);
  if (key == "NumCPUs") job.num_cpus = number_of(value);
  if (key == "TRES" || key == "AllocTRES" || key == "ReqTRES") {
    job.num_gpus = std::max(job.num_gpus, num_gpus_in(value));
  }
  if (key == "TresPerJob") job.num_gpus = std::max(job.num_gpus, num_gpus_asked_in(value));
  if (key == "TresPerNode") job.num_gpus = std::max(job.num_gpus, num_gpus_asked_in(value) * job.num_nodes);
  if (key == "RunTime") job.elapsed = parse_elapsed(value).value_or(Seconds(0));
  if (key == "TimeLimit") job.limit = parse_elapsed(value);
  if (key == "SubmitTime") job.submitted = parse_time(value);
  if (key == "EligibleTime") job.eligible = parse_time(value);
  if (key == "StartTime") job.started = parse_time(value);
  if (key == "EndTime") job.ended = parse_time(value);
  if (key == "Restarts") job.num_restarts = number_of(value);
  if (key == "ExitCode") set_exit(job, value);
}

/// Keys whose value takes the rest of the line, because it may contain blanks.
bool set_line(Job& job, std::string_view key, std::string_view value) {
  if (key == "StdOut") job.out = text_of(value);
  if (key == "StdErr") job.err = text_of(value);
  if (key == "WorkDir") job.folder = text_of(value);
  if (key == "Command") job.command = text_of(value);
  static constexpr std::array<std::string_view, 10> kLines = {"StdOut",     "StdErr",  "StdIn",        "WorkDir",
                                                              "Command",    "Comment", "AdminComment", "SystemComment",
                                                              "SubmitLine", "Extra"};
  return std::ranges::find(kLines, key) != kLines.end();
}

Job parse_block(std::string_view block) {
  Job job;
  std::string_view array, task, leader, component;
  bool is_first = true;
  for (const auto line : lines_of(block)) {
    const auto begin = line.find_first_not_of(' ');
    if (begin == line.npos) continue;
    auto rest = line.substr(begin);
    const auto equals = rest.find('=');
    if (equals != rest.npos && set_line(job, rest.substr(0, equals), rest.substr(equals + 1))) continue;
    if (const auto name = rest.find("JobName="); is_first && name != rest.npos) {
      job.name = rest.substr(name + 8);
      rest = rest.substr(0, name);
    }
    is_first = false;
    for (const auto word : words_of(rest)) {
      const auto at = word.find('=');
      if (at == word.npos) continue;
      const auto key = word.substr(0, at), value = word.substr(at + 1);
      if (key == "JobId") job.number = parse_int(value).value_or(0);
      if (key == "ArrayJobId") array = value;
      if (key == "ArrayTaskId") task = value;
      if (key == "HetJobId") leader = value;
      if (key == "HetJobOffset") component = value;
      set_field(job, key, value);
    }
  }
  job.id = std::to_string(job.number);
  if (!array.empty() && !task.empty()) set_array(job, array, task);
  if (!leader.empty() && !component.empty()) job.id = fmt::format("{}+{}", leader, component);
  return job;
}

}  // namespace

bool Job::is_waiting() const {
  return state == "PENDING" || state == "REQUEUED" || state == "REQUEUE_FED" || state == "REQUEUE_HOLD" ||
         state == "SPECIAL_EXIT";
}

bool Job::has_ended() const {
  static constexpr std::array<std::string_view, 9> kEnds = {"COMPLETED", "FAILED",    "CANCELLED",
                                                            "TIMEOUT",   "NODE_FAIL", "PREEMPTED",
                                                            "BOOT_FAIL", "DEADLINE",  "OUT_OF_MEMORY"};
  return std::ranges::find(kEnds, state) != kEnds.end();
}

bool Job::has_run() const { return !node_list.empty() || !batch_host.empty() || elapsed.count() > 0; }

std::vector<Job> parse_squeue(std::string_view text) {
  constexpr size_t kNumColumns = 18;
  std::vector<Job> jobs;
  for (const auto line : lines_of(text)) {
    std::vector<std::string_view> cells;
    auto rest = line;
    if (rest.ends_with('|')) rest.remove_suffix(1);
    while (cells.size() + 1 < kNumColumns) {  // the name comes last, because it may contain the separator
      const auto end = rest.find('|');
      if (end == rest.npos) break;
      cells.push_back(rest.substr(0, end));
      rest.remove_prefix(end + 1);
    }
    if (cells.size() + 1 != kNumColumns) {  // "CLUSTER: name", or a name with a line end
      if (!jobs.empty() && !line.empty() && !line.starts_with("CLUSTER: ")) {
        jobs.back().name += fmt::format("\n{}", line.ends_with('|') ? line.substr(0, line.size() - 1) : line);
      }
      continue;
    }
    cells.push_back(rest);
    Job job{.id = std::string(cells[0]), .number = parse_int(cells[1]).value_or(0)};
    if (const auto underscore = cells[0].find('_'); underscore != cells[0].npos) {
      auto task = cells[0].substr(underscore + 1);
      if (task.starts_with('[') && task.ends_with(']')) task = task.substr(1, task.size() - 2);
      set_array(job, cells[0].substr(0, underscore), task);
    }
    job.state = cells[2];
    job.reason = text_of(cells[3]);
    job.user = cells[4];
    job.partition = cells[5];
    job.elapsed = parse_elapsed(cells[6]).value_or(Seconds(0));
    job.limit = parse_elapsed(cells[7]);
    job.num_nodes = number_of(cells[8]);
    job.num_cpus = number_of(cells[9]);
    // Sites that do not account GPUs (AccountingStorageTRES) have them in the request alone.
    job.num_gpus =
        std::max({num_gpus_in(cells[10]), num_gpus_asked_in(cells[11]) * job.num_nodes, num_gpus_asked_in(cells[12])});
    job.node_list = text_of(cells[13]);
    job.started = parse_time(cells[14]);
    job.submitted = parse_time(cells[15]);
    job.num_restarts = number_of(cells[16]);
    job.name = cells[17];
    jobs.push_back(std::move(job));
  }
  return jobs;
}

std::vector<Job> parse_scontrol(std::string_view text) {
  std::vector<Job> jobs;
  constexpr std::string_view kBegin = "JobId=";
  auto begin = text.starts_with(kBegin) ? 0 : text.find("\nJobId=");
  while (begin != text.npos && begin < text.size()) {
    const auto next = text.find("\nJobId=", begin + 1);
    jobs.push_back(parse_block(text.substr(begin, next == text.npos ? next : next - begin)));
    begin = next;
  }
  return jobs;
}

std::optional<Seconds> parse_elapsed(std::string_view text) {
  text = text.substr(0, text.find('.'));
  int64_t days = 0;
  if (const auto dash = text.find('-'); dash != text.npos) {
    const auto number = parse_int(text.substr(0, dash));
    if (!number || *number < 0 || *number > 1'000'000) return std::nullopt;
    days = *number;
    text.remove_prefix(dash + 1);
  }
  const auto parts = split(text, ':');
  if (parts.empty() || parts.size() > 3 || (parts.size() < 2 && days == 0)) return std::nullopt;
  int64_t seconds = 0;
  for (const auto part : parts) {
    const auto number = parse_int(part);
    if (!number || *number < 0 || *number > 1'000'000'000) return std::nullopt;
    seconds = seconds * 60 + *number;
  }
  return Seconds(days * 86'400 + seconds);
}

std::optional<Time> parse_time(std::string_view text) {
  if (const auto seconds = parse_int(text)) {
    if (*seconds <= 0 || *seconds > 100'000'000'000) return std::nullopt;
    return Time(Seconds(*seconds));
  }
  if (text.size() < 19 || text[4] != '-') return std::nullopt;  // not "today 9:00" and the like
  return parse_moment(text, {});
}

std::optional<std::string_view> find_tres(std::string_view list, std::string_view name) {
  for (const auto part : split(list, ',')) {
    const auto equals = part.find('=');
    if (equals != part.npos && part.substr(0, equals) == name) return part.substr(equals + 1);
  }
  return std::nullopt;
}

int64_t num_gpus_in(std::string_view list) {
  if (const auto all = find_tres(list, "gres/gpu")) return number_of(*all);
  int64_t sum = 0;
  for (const auto part : split(list, ',')) {
    if (part.starts_with("gres/gpu:")) sum += number_of(part.substr(std::min(part.find('=') + 1, part.size())));
  }
  return sum;
}

nlohmann::ordered_json to_json(const Job& job) {
  const auto seconds = [](const std::optional<Time>& time) {
    return time ? Json(std::chrono::duration_cast<Seconds>(time->time_since_epoch()).count()) : Json();
  };
  const auto words = explain_reason(job.reason);
  return {{"id", job.id},
          {"number", job.number},
          {"name", job.name},
          {"user", job.user},
          {"partition", job.partition},
          {"state", job.state},
          {"reason", job.reason.empty() ? Json() : Json(job.reason)},
          {"reason_meaning", words.meaning.empty() ? Json() : Json(words.meaning)},
          {"nodes", job.node_list},
          {"num_nodes", job.num_nodes},
          {"num_cpus", job.num_cpus},
          {"num_gpus", job.num_gpus},
          {"elapsed_seconds", job.elapsed.count()},
          {"limit_seconds", job.limit ? Json(job.limit->count()) : Json()},
          {"submit_seconds", seconds(job.submitted)},
          {"start_seconds", seconds(job.started)},
          {"end_seconds", job.has_ended() ? seconds(job.ended) : Json()},
          {"num_restarts", job.num_restarts}};
}

int64_t num_gpus_asked_in(std::string_view request) {
  int64_t sum = 0;
  for (auto part : split(request, ',')) {
    if (part.starts_with("gres:") || part.starts_with("gres/")) part.remove_prefix(5);
    if (!part.starts_with("gpu")) continue;
    const auto end = part.find_last_of(":=");
    sum += end == part.npos ? 1 : parse_int(part.substr(end + 1, part.find('(') - end - 1)).value_or(1);
  }
  return sum;
}

std::optional<JobName> parse_job_name(std::string_view text) {
  text = text.substr(0, text.find('.'));
  const auto mark = text.find_first_of("_+");
  const auto number = parse_int(text.substr(0, mark));
  if (!number || *number <= 0) return std::nullopt;
  if (mark == text.npos) return JobName{*number, std::nullopt};
  const auto part = parse_int(text.substr(mark + 1));
  if (!part || *part < 0) return std::nullopt;
  return text[mark] == '_' ? JobName{*number, part} : JobName{*number, std::nullopt, part};
}

JobName require_job_name(std::string_view text) {
  if (const auto name = parse_job_name(text)) return *name;
  throw Error(ErrorCode::kInvalidArgument, "'{}' is no job of Slurm; give a number, as 123, 123_4 or 123+1",
              printable(text));
}

std::string to_text(const JobName& name) {
  if (name.component) return fmt::format("{}+{}", name.number, *name.component);
  return name.task ? fmt::format("{}_{}", name.number, *name.task) : std::to_string(name.number);
}

std::optional<JobName> job_of_file(std::string_view path) {
  const auto name = base_name(path);
  for (auto end = name.size(); end > 0; --end) {
    if (!is_digit(name[end - 1]) || (end < name.size() && std::isalnum(static_cast<unsigned char>(name[end])) != 0)) {
      continue;
    }
    auto begin = end - 1;
    while (begin > 0 &&
           (is_digit(name[begin - 1]) || (name[begin - 1] == '_' && begin > 1 && is_digit(name[begin - 2])))) {
      --begin;
    }
    if (begin > 0 && std::isalnum(static_cast<unsigned char>(name[begin - 1])) != 0) continue;  // such as "v2"
    // Of train_7_123_4 the last two numbers are the job and the task.
    auto words = split(name.substr(begin, end - begin), '_');
    if (words.size() > 2) words.erase(words.begin(), words.end() - 2);
    const auto text = words.size() == 2 ? fmt::format("{}_{}", words[0], words[1]) : std::string(words.at(0));
    if (const auto found = parse_job_name(text)) return found;
  }
  return std::nullopt;
}

std::vector<int64_t> array_tasks_of(const Job& job) {
  constexpr int64_t kMostTasks = 5'000'000;  // the largest MaxArraySize is 4,000,001
  std::vector<int64_t> tasks;
  for (const auto part : split(std::string_view(job.array_task).substr(0, job.array_task.find('%')), ',')) {
    const auto range = part.substr(0, part.find(':'));
    const auto step = range.size() == part.size() ? 1 : parse_int(part.substr(range.size() + 1));
    const auto dash = range.find('-');
    const auto first = parse_int(range.substr(0, dash));
    const auto last = dash == range.npos ? first : parse_int(range.substr(dash + 1));
    if (!first || !last || !step || *first < 0 || *last > kMostTasks || *step < 1) return {};
    for (auto task = *first; task <= *last; task += *step) tasks.push_back(task);
  }
  return tasks;
}

std::string to_task_list(const std::vector<int64_t>& tasks) {
  std::string list;
  for (size_t i = 0; i < tasks.size();) {
    auto end = i + 1;
    while (end < tasks.size() && tasks[end] == tasks[end - 1] + 1) ++end;
    list += fmt::format("{}{}", list.empty() ? "" : ",", tasks[i]);
    if (end - i > 1) list += fmt::format("{}{}", end - i > 2 ? "-" : ",", tasks[end - 1]);
    i = end;
  }
  return list;
}

std::string short_id(const Job& job) {
  constexpr size_t kMost = 32;
  const auto comma = job.id.rfind(',', kMost);
  return job.id.size() <= kMost || comma == job.id.npos ? job.id : job.id.substr(0, comma) + ",...]";
}

std::string expand_path(std::string_view pattern, const Job& job) {
  if (pattern.empty()) return "";
  std::string path;
  const auto host = [&]() -> std::string {
    if (!job.batch_host.empty()) return job.batch_host;
    try {
      const auto hosts = expand_hostlist(job.node_list);
      return hosts.empty() ? "" : hosts.front();
    } catch (const std::exception&) {
      return "";
    }
  };
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      path += pattern[i];
      continue;
    }
    auto at = i + 1;
    size_t width = 0;
    while (at < pattern.size() && is_digit(pattern[at])) width = width * 10 + static_cast<size_t>(pattern[at++] - '0');
    std::string value;
    switch (at < pattern.size() ? pattern[at] : '\0') {
      case '%': value = "%"; break;
      case 'j': value = std::to_string(job.number); break;
      case 'J': value = fmt::format("{}.batch", job.number); break;
      case 'A': value = std::to_string(job.array.value_or(job.number)); break;
      case 'a': value = !job.array_task.empty() ? job.array_task : job.array ? "%a" : "4294967294"; break;
      case 'N': value = host().empty() ? "%N" : host(); break;
      case 'n':
      case 't': value = "0"; break;
      case 's': value = "batch"; break;
      case 'u': value = job.user; break;
      case 'x': value = job.name; break;
      default: path += '%'; continue;  // not one of Slurm's patterns
    }
    const bool is_number = !value.empty() && std::ranges::all_of(value, is_digit);
    width = std::min<size_t>(width, 10);
    if (is_number && value.size() < width) value.insert(0, width - value.size(), '0');
    path += value;
    i = at;
  }
  return path.starts_with('/') || job.folder.empty() ? path : job.folder + "/" + path;
}

}  // namespace yoke::slurm
