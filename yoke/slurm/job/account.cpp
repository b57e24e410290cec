#include "yoke/slurm/job/account.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "yoke/base/environment.h"
#include "yoke/base/quantity.h"
#include "yoke/base/text.h"

namespace yoke::slurm {
namespace {

/// "00:01.648", "1-02:03:04"
std::optional<double> parse_cpu_time(std::string_view text) {
  const auto whole = parse_elapsed(text);
  if (!whole) return std::nullopt;
  const auto dot = text.find('.');
  const auto fraction = dot == text.npos ? std::nullopt : parse_real(text.substr(dot));
  return static_cast<double>(whole->count()) + fraction.value_or(0);
}

constexpr size_t kNumColumns = 1 + std::ranges::count(std::string_view(kSacctColumns), ',');

/// A column of kSacctColumns. Its name is looked up by the compiler.
struct SacctColumn {
  size_t place = 0;

  consteval SacctColumn(const char* name) {
    std::string_view rest = kSacctColumns;
    for (; rest.substr(0, rest.find(',')) != name; ++place) rest.remove_prefix(rest.find(',') + 1);
  }
};

struct SacctRow {
  std::vector<std::string_view> cells;

  std::string_view operator[](SacctColumn column) const { return cells[column.place]; }
  int64_t number(SacctColumn column) const { return parse_int(cells[column.place]).value_or(0); }
};

/// The rows of sacct's output. A name, a folder or a line of submission may have line ends, so a row ends before a line
/// that begins with a job and its number.
std::vector<std::string_view> rows_of(std::string_view text) {
  std::vector<std::string_view> rows;
  for (const auto line : lines_of(text)) {
    const auto first = line.find('|');
    const bool is_begin =
        first != line.npos && first + 1 < line.size() && is_digit(line[0]) && is_digit(line[first + 1]);
    if (is_begin || rows.empty()) {
      rows.push_back(line);
    } else {
      const auto* const begin = rows.back().data();
      rows.back() = {begin, static_cast<size_t>(line.data() + line.size() - begin)};
    }
  }
  return rows;
}

/// Splits a row of which the name and the line of submission may contain the separator: a name ends before the part
/// that begins as a command line of Slurm, if there is one.
std::optional<SacctRow> to_row(std::string_view line) {
  auto cells = split(line, '|');
  if (cells.size() < kNumColumns) return std::nullopt;
  SacctRow row;
  row.cells.assign(cells.begin(), cells.begin() + kNumColumns);
  if (cells.size() == kNumColumns) return row;
  constexpr auto kName = SacctColumn("JobName").place;
  size_t last_of_name = cells.size() - 2;
  for (size_t i = kName + 1; i < cells.size(); ++i) {
    const auto program = base_name(cells[i].substr(0, cells[i].find(' ')));
    if (program != "sbatch" && program != "srun" && program != "salloc") continue;
    last_of_name = i - 1;
    break;
  }
  const auto* const name = cells[kName].data();
  const auto end_of_name = cells[last_of_name].data() + cells[last_of_name].size();
  row.cells[kName] = {name, static_cast<size_t>(end_of_name - name)};
  const auto* const rest = cells[last_of_name + 1].data();
  row.cells[kName + 1] = {rest, static_cast<size_t>(line.data() + line.size() - rest)};
  return row;
}

std::string word_of(std::string_view text) {
  if (text == "None" || text == "None assigned" || text == "Unknown") return "";
  return std::string(text);
}

Account to_account(const SacctRow& row) {
  Account account;
  auto& job = account.job;
  job.id = row["JobID"];
  job.number = row.number("JobIDRaw");
  if (const auto name = parse_job_name(job.id); name && name->task) {
    job.array = name->number;
    job.array_task = std::to_string(*name->task);
  } else if (const auto bracket = job.id.find("_["); bracket != job.id.npos) {
    job.array = parse_int(job.id.substr(0, bracket));
    job.array_task = job.id.substr(bracket + 2, job.id.size() - bracket - 3);
  }
  job.state = row["State"].substr(0, row["State"].find(' '));  // "CANCELLED by 1000"
  job.reason = word_of(row["Reason"]);
  job.user = row["User"];
  job.partition = row["Partition"];
  job.name = row["JobName"];
  job.node_list = word_of(row["NodeList"]);
  job.folder = row["WorkDir"];
  job.num_nodes = row.number("NNodes");
  job.num_cpus = row.number("AllocCPUS");
  job.num_gpus = std::max(num_gpus_in(row["AllocTRES"]), num_gpus_in(row["ReqTRES"]));
  job.elapsed = Seconds(row.number("ElapsedRaw"));
  if (const auto minutes = parse_int(row["TimelimitRaw"])) job.limit = Seconds(*minutes * 60);
  job.submitted = parse_time(row["Submit"]);
  job.eligible = parse_time(row["Eligible"]);
  job.started = parse_time(row["Start"]);
  job.ended = parse_time(row["End"]);
  if (const auto colon = row["ExitCode"].find(':'); colon != std::string_view::npos) {
    job.exit_code = static_cast<int>(parse_int(row["ExitCode"].substr(0, colon)).value_or(0));
    job.signal = static_cast<int>(parse_int(row["ExitCode"].substr(colon + 1)).value_or(0));
  }
  const auto eligible = job.array && job.submitted ? std::nullopt : job.eligible;
  if (const auto begin = std::max(eligible, job.submitted); job.started && begin) {
    account.planned = std::max(Seconds(0), std::chrono::duration_cast<Seconds>(*job.started - *begin));
  }
  // With --exclusive or --mem=0 a job has more than it asked for. Where memory is not divided, it has no amount.
  if (const auto had = find_tres(row["AllocTRES"], "mem")) account.memory_bytes = parse_memory(*had);
  if (account.memory_bytes.value_or(0) == 0) {
    account.memory_bytes = parse_memory(row["ReqMem"], job.num_nodes, job.num_cpus);
  }
  if (account.memory_bytes == 0) account.memory_bytes.reset();  // --mem=0: all memory of the nodes
  account.is_out_of_memory = job.state == "OUT_OF_MEMORY";
  account.submit_line = row["SubmitLine"];
  return account;
}

void add_step(Account& account, const SacctRow& row) {
  // The job itself may be FAILED or even COMPLETED.
  account.is_out_of_memory = account.is_out_of_memory || row["State"].starts_with("OUT_OF_MEMORY");
  account.peak_task_bytes = std::max(account.peak_task_bytes, parse_memory(row["MaxRSS"]));
  account.num_tasks = std::max(account.num_tasks, parse_int(row["NTasks"]));
  if (const auto cpu = parse_cpu_time(row["TotalCPU"])) account.cpu_seconds = account.cpu_seconds.value_or(0) + *cpu;
  // Steps run beside the step "batch", whose energy contains theirs.
  const auto energy = parse_real(row["ConsumedEnergyRaw"]);
  if (energy && *energy > 0) account.energy_joules = std::max(account.energy_joules, energy);
  if (const auto percent = find_tres(row["TRESUsageInAve"], "gres/gpuutil"))
    account.gpu_percent = std::max(account.gpu_percent, parse_real(*percent));
  if (const auto memory = find_tres(row["TRESUsageInMax"], "gres/gpumem")) {
    account.gpu_peak_bytes = std::max(account.gpu_peak_bytes, parse_memory(*memory));
  }
}

/// The memory of a step while it ran.
struct StepMemory {
  Time begin, end;
  int64_t bytes = 0;
};

std::optional<StepMemory> memory_of_step(const SacctRow& row) {
  auto bytes = parse_memory(find_tres(row["TRESUsageInTot"], "mem").value_or(""));
  if (!bytes) bytes = parse_memory(row["MaxRSS"]);
  if (!bytes) return std::nullopt;
  return StepMemory{.begin = parse_time(row["Start"]).value_or(Time::min()),
                    .end = parse_time(row["End"]).value_or(Time::max()),
                    .bytes = *bytes};
}

/// The most memory of steps at one time. Slurm has whole seconds, so a step that ends when another one begins is taken
/// to have run before it.
int64_t peak_of(const std::vector<StepMemory>& steps) {
  std::vector<std::pair<Time, int64_t>> changes;  // sorted, those at one time begin with the ends
  int64_t peak = 0, sum = 0;
  for (const auto& [begin, end, bytes] : steps) {
    peak = std::max(peak, bytes);
    if (begin >= end) continue;
    changes.emplace_back(begin, bytes);
    changes.emplace_back(end, -bytes);
  }
  std::ranges::sort(changes);
  for (const auto& [_, bytes] : changes) peak = std::max(peak, sum += bytes);
  return peak;
}

/// Whether a run that ended so goes on as another run of the same job. `yoke slurm resume` leaves REQUEUED, too.
bool is_put_back(const Job& run) {
  constexpr auto kStates = std::to_array<std::string_view>(
      {"REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "RESIZING"});
  return std::ranges::find(kStates, run.state) != kStates.end();
}

bool is_same_submission(const Account& one, const Account& other) {
  const auto is_same = [](const std::string& a, const std::string& b) { return a == b || a.empty() || b.empty(); };
  return is_same(one.job.user, other.job.user) && is_same(one.submit_line, other.submit_line);
}

}  // namespace

std::vector<Account> parse_sacct(std::string_view text) {
  std::vector<Account> accounts;
  std::map<size_t, std::vector<StepMemory>> steps;  // by place in `accounts`
  std::map<size_t, Time> last_ends;                 // of all steps of a run
  for (const auto line : rows_of(text)) {
    const auto row = to_row(line);
    if (!row) continue;
    const auto id = (*row)["JobID"];
    if (id.find('.') == id.npos) {
      accounts.push_back(to_account(*row));
      continue;
    }
    if (id.ends_with(".extern")) continue;
    // A step follows its job. With --duplicates, the steps of a run follow that run.
    const auto of_job = id.substr(0, id.find('.'));
    const auto found = std::find_if(accounts.rbegin(), accounts.rend(), [&](const auto& one) {
      return one.job.id == of_job &&
             (!one.job.started || !parse_time((*row)["Start"]) || *one.job.started <= *parse_time((*row)["Start"]));
    });
    if (found == accounts.rend()) continue;
    add_step(*found, *row);
    const auto place = static_cast<size_t>(accounts.rend() - found) - 1;
    if (const auto memory = memory_of_step(*row)) steps[place].push_back(*memory);
    auto& last_end = last_ends.try_emplace(place, Time::min()).first->second;
    last_end = std::max(last_end, parse_time((*row)["End"]).value_or(Time::max()));
  }
  for (const auto& [place, end] : last_ends) {
    // A run that had ended and was put back later (`yoke slurm resume`) has the time of that as its end.
    auto& job = accounts[place].job;
    if (job.state != "REQUEUED" || !job.started || end < *job.started || end >= *job.started + job.elapsed) continue;
    job.elapsed = std::chrono::duration_cast<Seconds>(end - *job.started);
    job.ended = end;
  }
  for (const auto& [place, of_run] : steps) accounts[place].peak_sum_bytes = peak_of(of_run);
  std::ranges::stable_sort(accounts, {}, [](const Account& one) {
    return one.job.submitted.value_or(one.job.started.value_or(Time::max()));
  });
  return accounts;
}

JobAccounts tell_jobs_apart(std::vector<Account> accounts) {
  JobAccounts result;
  std::map<std::string, bool> is_over;  // by id: whether all earlier accounts are of other jobs
  for (size_t i = accounts.size(); i-- > 0;) {
    auto& account = accounts[i];
    const auto [over, is_last] = is_over.try_emplace(account.job.id, false);
    const bool is_foreign = over->second || (!is_last && !is_put_back(account.job)) ||
                            !is_same_submission(account, result.runs.empty() ? account : result.runs.front());
    over->second = over->second || is_foreign;
    (is_foreign ? result.others : result.runs).push_back(std::move(account));
  }
  std::ranges::reverse(result.runs);
  std::ranges::reverse(result.others);
  return result;
}

JobAccounts tell_jobs_apart(std::vector<Account> accounts, const Job& known) {
  auto result = tell_jobs_apart(std::move(accounts));
  const auto move_first = [&](size_t count) {
    const auto end = result.runs.begin() + static_cast<std::ptrdiff_t>(std::min(count, result.runs.size()));
    result.others.insert(result.others.end(), std::make_move_iterator(result.runs.begin()),
                         std::make_move_iterator(end));
    result.runs.erase(result.runs.begin(), end);
  };
  if (result.runs.empty()) return result;
  const auto& newest = result.runs.back();
  const bool is_late = known.submitted && newest.job.submitted && *newest.job.submitted < *known.submitted;
  if (is_late && (!is_put_back(newest.job) || newest.job.user != known.user)) move_first(result.runs.size());
  const auto num_runs = known.num_restarts + (is_late ? 0 : 1);
  const auto is_run = [](const Account& one) { return one.job.state != "RESIZING"; };  // else a part of one
  while (std::ranges::count_if(result.runs, is_run) > num_runs) move_first(1);
  return result;
}

std::optional<Job> cancelled_tasks(const Job& recorded, const std::vector<Job>& known) {
  auto rest = array_tasks_of(recorded);
  std::set<int64_t> others;
  for (const auto& job : known) {
    for (const auto task : array_tasks_of(job)) others.insert(task);
  }
  std::erase_if(rest, [&](int64_t task) { return others.contains(task); });
  if (rest.empty() || !recorded.array) return std::nullopt;
  std::ranges::sort(rest);
  auto job = recorded;
  job.state = "CANCELLED";
  job.reason.clear();
  job.started.reset();
  job.array_task = to_task_list(rest);
  job.id =
      fmt::format("{}_{}{}{}", *job.array, rest.size() == 1 ? "" : "[", job.array_task, rest.size() == 1 ? "" : "]");
  return job;
}

std::string output_option(std::string_view submit_line, char letter) {
  auto words = check::option_words(words_of(submit_line));
  if (!words.empty()) words.erase(words.begin());  // sbatch
  return output_option(words, letter);
}

std::string output_option(const std::vector<check::OptionWord>& words, char letter) {
  std::string value;
  for (const auto& option : check::parse_options(check::kSbatch, words).given) {
    if (option.spec->short_name == letter) value = option.value;  // the last one counts
  }
  return value;
}

std::optional<int64_t> parse_memory(std::string_view text, int64_t num_nodes, int64_t num_cpus) {
  int64_t factor = 1;
  if (text.ends_with('n') || text.ends_with('c')) {
    factor = text.ends_with('n') ? num_nodes : num_cpus;
    text.remove_suffix(1);
  }
  if (text.empty()) return std::nullopt;
  double unit = 1;
  constexpr std::string_view kUnits = "KMGTPE";
  if (const auto at = kUnits.find(text.back()); at != kUnits.npos) {
    unit = std::pow(1024.0, static_cast<double>(at + 1));
    text.remove_suffix(1);
  }
  const auto number = parse_real(text);
  if (!number || *number < 0 || *number * unit * static_cast<double>(factor) > 9e18) return std::nullopt;
  return static_cast<int64_t>(*number * unit) * factor;
}

}  // namespace yoke::slurm
