#include "yoke/slurm/job/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/json.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/slurm/words/options.h"

namespace yoke::slurm {
namespace {

constexpr size_t kMostCombinations = 100'000;
constexpr const char* kSweepFormat = "yoke sweep 1";

/// `word` with values for placeholders. What looks like one in a value stays.
std::string filled(const std::string& word, const SweepValues& values) {
  std::string result;
  for (size_t at = 0; at < word.size();) {
    const auto end = word[at] == '{' ? word.find('}', at) : word.npos;
    const auto found = end == word.npos ? values.end()
                                        : std::ranges::find(values, std::string_view(word).substr(at + 1, end - at - 1),
                                                            &SweepValues::value_type::first);
    result += found == values.end() ? std::string(1, word[at]) : found->second;
    at = found == values.end() ? at + 1 : end + 1;
  }
  return result;
}

bool has_placeholder(const std::vector<std::string>& argv, const std::string& name) {
  return std::ranges::any_of(argv, [&](const std::string& word) { return word.find("{" + name + "}") != word.npos; });
}

/// Takes a cell of CSV from the front of `text`. nullopt: it is empty and has no quotes.
/// Errors  kInvalidArgument: quotes are not as they should be; `where` names the line.
std::optional<std::string> take_cell(std::string_view& text, const std::string& where) {
  constexpr std::string_view kBlanks = " \t\r";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  std::string cell;
  const bool is_quoted = text.starts_with('"');
  while (is_quoted) {
    const auto end = text.find('"', 1);
    if (end == text.npos) throw Error(ErrorCode::kInvalidArgument, "{} has a quote without an end", where);
    cell += text.substr(1, end - 1);
    text.remove_prefix(end + 1);
    if (!text.starts_with('"')) break;
    cell += '"';  // two quotes are one, and the second one begins the next part
  }
  auto rest = text.substr(0, text.find_first_of(",\n"));
  text.remove_prefix(rest.size());
  rest = rest.substr(0, rest.find_last_not_of(kBlanks) + 1);
  if (!is_quoted) return rest.empty() ? std::nullopt : std::optional(std::string(rest));
  if (!rest.empty()) throw Error(ErrorCode::kInvalidArgument, "{} has text after the end of a quote", where);
  return cell;
}

bool is_name(std::string_view text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  return !text.empty() && text.find_first_not_of(kLetters) == text.npos;
}

/// Whether a program starts others on all nodes of the job, or else on its own node (`several_nodes` false).
bool is_launcher(const std::vector<std::string>& argv, bool several_nodes) {
  constexpr std::array<std::string_view, 8> kOfJobs = {"srun",    "mpirun", "mpiexec", "mpiexec.hydra",
                                                       "orterun", "prun",   "aprun",   "prrte"};
  constexpr std::array<std::string_view, 5> kOfNodes = {"torchrun", "accelerate", "deepspeed", "horovodrun",
                                                        "colossalai"};
  if (argv.empty()) return false;
  const auto program = base_name(argv[0]);
  const auto second = argv.size() > 1 ? std::string_view(argv[1]) : "";
  if (program == "yoke") return second == "run" || second == "train" || second == "exec";
  if (std::ranges::find(kOfJobs, program) != kOfJobs.end()) return true;
  if (several_nodes) return false;
  const auto third = argv.size() > 2 ? std::string_view(argv[2]) : "";
  return std::ranges::find(kOfNodes, program) != kOfNodes.end() ||
         (second == "-m" && (third == "torch.distributed.run" || third == "torch.distributed.launch"));
}

}  // namespace

SweepParameter parse_parameter(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == text.npos || !is_name(std::string_view(text).substr(0, equals))) {
    throw Error(ErrorCode::kInvalidArgument, "--param {} is not NAME=VALUE,VALUE,..., as in --param lr=0.1,0.01",
                printable(text));
  }
  SweepParameter parameter{.name = text.substr(0, equals), .values = {}};
  for (const auto value : split(std::string_view(text).substr(equals + 1), ',')) {
    if (value.empty()) throw Error(ErrorCode::kInvalidArgument, "--param {} has an empty value", printable(text));
    parameter.values.emplace_back(value);
  }
  if (parameter.values.empty()) throw Error(ErrorCode::kInvalidArgument, "--param {} has no value", printable(text));
  return parameter;
}

std::vector<SweepValues> parse_parameter_file(std::string_view text, const std::string& name) {
  if (constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf"; text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());
  }
  std::vector<std::string> names;
  std::vector<SweepValues> rows;
  for (int64_t line = 1; !text.empty();) {
    const auto where = fmt::format("{}, line {},", printable(name), line);
    const auto before = text;
    std::vector<std::optional<std::string>> cells = {take_cell(text, where)};
    while (text.starts_with(',')) {
      text.remove_prefix(1);
      cells.push_back(take_cell(text, where));
    }
    if (!text.empty()) text.remove_prefix(1);  // the line feed
    line += std::ranges::count(before.substr(0, before.size() - text.size()), '\n');
    if (cells.size() == 1 && !cells[0]) continue;
    if (names.empty()) {
      for (const auto& cell : cells) {
        if (!cell || !is_name(*cell) || std::ranges::find(names, *cell) != names.end()) {
          throw Error(ErrorCode::kInvalidArgument,
                      "{} must have the names of the parameters, as in lr,batch; '{}' is no name, or is there twice",
                      where, printable(cell.value_or("")));
        }
        names.push_back(*cell);
      }
      continue;
    }
    if (cells.size() != names.size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "{} has {} values for {} names; a value with commas is written in quotes", where, cells.size(),
                  names.size());
    }
    auto& row = rows.emplace_back();
    for (size_t i = 0; i < cells.size(); ++i) {
      if (!cells[i]) {
        throw Error(ErrorCode::kInvalidArgument, "{} has no value for {}; an empty one is written as \"\"", where,
                    names[i]);
      }
      row.emplace_back(names[i], *cells[i]);
    }
  }
  if (rows.empty()) throw Error(ErrorCode::kInvalidArgument, "{} has no line with values", printable(name));
  return rows;
}

std::vector<SweepTask> plan_sweep(const std::vector<SweepParameter>& parameters, const std::vector<std::string>& argv,
                                  const std::vector<SweepValues>& rows) {
  std::vector<SweepTask> tasks;
  for (const auto& row : rows) tasks.push_back({.parameters = row, .argv = {}});
  const auto& in_file = rows.at(0);
  const auto is_used = [&](const auto& one) { return has_placeholder(argv, one.first); };
  if (!in_file.empty() && std::ranges::none_of(in_file, is_used)) {
    throw Error(ErrorCode::kInvalidArgument,
                "no word of the program has {{{}}} or another name of the file, so all its lines would do the same",
                in_file[0].first);
  }
  for (const auto& parameter : parameters) {
    const auto is_same = [&](const SweepParameter& other) { return other.name == parameter.name; };
    if (std::ranges::count_if(parameters, is_same) > 1 ||
        std::ranges::find(in_file, parameter.name, &SweepValues::value_type::first) != in_file.end()) {
      throw Error(ErrorCode::kInvalidArgument, "--param {} is given twice, or is in the file", parameter.name);
    }
    if (!has_placeholder(argv, parameter.name)) {
      throw Error(ErrorCode::kInvalidArgument, "no word of the program has {{{}}}, so all its values would do the same",
                  parameter.name);
    }
    if (tasks.size() * parameter.values.size() > kMostCombinations) {
      throw Error(ErrorCode::kInvalidArgument, "the sweep has over {} combinations", kMostCombinations);
    }
    std::vector<SweepTask> more;
    for (const auto& task : tasks) {
      for (const auto& value : parameter.values) {
        auto next = task;
        next.parameters.emplace_back(parameter.name, value);
        more.push_back(std::move(next));
      }
    }
    tasks = std::move(more);
  }
  for (auto& task : tasks) {
    for (const auto& word : argv) task.argv.push_back(filled(word, task.parameters));
  }
  return tasks;
}

std::vector<std::string> unknown_placeholders(const std::vector<SweepParameter>& parameters,
                                              const std::vector<std::string>& argv) {
  std::vector<std::string> names;
  for (const auto& word : argv) {
    for (auto at = word.find('{'); at != word.npos; at = word.find('{', at + 1)) {
      const auto end = word.find('}', at);
      if (end == word.npos) break;
      const auto name = word.substr(at + 1, end - at - 1);
      const bool is_shell = at > 0 && word[at - 1] == '$';  // ${HOME}
      const bool is_word = is_name(name) && std::isalpha(static_cast<unsigned char>(name[0])) != 0;
      if (is_shell || !is_word || std::ranges::find(names, name) != names.end()) continue;
      if (std::ranges::find(parameters, name, &SweepParameter::name) == parameters.end()) names.push_back(name);
    }
  }
  return names;
}

std::string unused_tasks_warning(const std::vector<std::string>& options, const std::vector<std::string>& argv) {
  bool has_nodes = false;
  std::vector<std::string> causes;
  for (const auto& option : check::parse_options(check::kSbatch, check::option_words(options)).given) {
    const std::string_view name = option.spec->name, value = option.value;
    const bool is_nodes = name == "nodes";
    if (!is_nodes && name != "ntasks" && name != "ntasks-per-node" && name != "tasks-per-node") continue;
    // Of "2-4" and "2k" the number at the begin is the least.
    if (parse_int(value.substr(0, value.find_first_not_of("0123456789"))).value_or(1) < 2) continue;
    has_nodes |= is_nodes;
    causes.push_back(fmt::format("--{}={}", name, printable(value)));
  }
  if (causes.empty() || is_launcher(argv, has_nodes)) return "";
  return fmt::format(
      "each task of the sweep reserves several {} ({}), but runs the program once, on the first node and without RANK. "
      "Unless the program starts others by itself, give `yoke run` or srun before it: -- yoke run {} ...",
      has_nodes ? "nodes" : "tasks of Slurm", fmt::join(causes, " "), printable(argv.empty() ? "" : argv[0]));
}

std::string sweep_script(const std::vector<SweepTask>& tasks, const std::string& folder, const std::string& name) {
  std::string script = "#!/bin/bash\n#SBATCH --job-name=" + name +
                       "\n"
                       "# Each task of the array runs one combination of the parameters, in a folder of its own.\n"
                       "case $SLURM_ARRAY_TASK_ID in\n";
  for (size_t i = 0; i < tasks.size(); ++i) {
    script += "  " + std::to_string(i) + ") set --";
    for (const auto& word : tasks[i].argv) script += " " + shell_quoted(word);
    script += " ;;\n";
  }
  script +=
      "esac\n"
      "cd " +
      shell_quoted(folder) +
      "/\"$SLURM_ARRAY_TASK_ID\" || exit 1\n"
      "rm -f status\n"
      "\"$@\"\n"
      "status=$?\n"
      "echo \"$status $SLURM_ARRAY_JOB_ID ${SLURM_RESTART_COUNT:-0}\" >.status && mv .status status\n"
      "exit $status\n";
  return script;
}

std::vector<std::string> jobs_of_task(const Sweep& sweep, int64_t task) {
  std::vector<std::string> jobs = {sweep.job};
  for (const auto& rerun : sweep.reruns) {
    if (std::ranges::binary_search(rerun.tasks, task)) jobs.push_back(rerun.job);
  }
  return jobs;
}

const std::vector<std::string>& options_of_task(const Sweep& sweep, int64_t task) {
  const auto* options = &sweep.options;
  for (const auto& rerun : sweep.reruns) {
    if (std::ranges::binary_search(rerun.tasks, task)) options = &rerun.options;
  }
  return *options;
}

std::string to_text(const Sweep& sweep) {
  Json json = {{"format", kSweepFormat}, {"tasks", Json::array()}};
  for (const auto& task : sweep.tasks) {
    auto parameters = Json::object();
    for (const auto& [name, value] : task.parameters) parameters[name] = value;
    json["tasks"].push_back({{"parameters", parameters}, {"argv", task.argv}});
  }
  if (!sweep.job.empty()) json["job"] = sweep.job;
  if (!sweep.folder.empty()) json["folder"] = sweep.folder;
  json["options"] = sweep.options;
  if (sweep.at_once) json["at_once"] = *sweep.at_once;
  for (const auto& rerun : sweep.reruns) {
    json["reruns"].push_back({{"job", rerun.job}, {"tasks", rerun.tasks}, {"options", rerun.options}});
  }
  if (!sweep.cluster.empty()) json["cluster"] = sweep.cluster;
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

Sweep parse_sweep(std::string_view text, const std::string& name) {
  try {
    const auto json = nlohmann::ordered_json::parse(text);
    if (json.at("format") != kSweepFormat) {
      throw Error(ErrorCode::kDataLoss, "{} is of another version of yoke; collect the sweep with that one",
                  printable(name));
    }
    Sweep sweep;
    for (const auto& one : json.at("tasks")) {
      SweepTask task;
      for (const auto& [parameter, value] : one.at("parameters").items()) {
        task.parameters.emplace_back(parameter, value.get<std::string>());
      }
      task.argv = one.at("argv").get<std::vector<std::string>>();
      sweep.tasks.push_back(std::move(task));
    }
    sweep.job = json.value("job", "");
    sweep.folder = json.value("folder", "");
    sweep.options = json.value("options", sweep.options);
    if (json.contains("at_once")) sweep.at_once = json.at("at_once").get<int64_t>();
    for (const auto& one : json.value("reruns", nlohmann::ordered_json::array())) {
      SweepRerun rerun{.job = one.at("job").get<std::string>(),
                       .tasks = one.at("tasks").get<std::vector<int64_t>>(),
                       .options = one.at("options").get<std::vector<std::string>>()};
      std::ranges::sort(rerun.tasks);
      sweep.reruns.push_back(std::move(rerun));
    }
    sweep.cluster = json.value("cluster", "");
    return sweep;
  } catch (const nlohmann::json::exception& error) {
    throw Error(
        ErrorCode::kDataLoss,
        "{} is damaged or was not written by `yoke slurm array`: {}; sweep.sh beside it has the command of each "
        "task",
        printable(name), printable(error.what()));
  }
}

}  // namespace yoke::slurm
