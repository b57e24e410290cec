#include "yoke/slurm/job/job_top.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <thread>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/format.h"
#include "yoke/base/hostlist.h"
#include "yoke/base/process.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/slurm/job/holding.h"
#include "yoke/slurm/job/query.h"

namespace yoke::slurm {
namespace {

constexpr std::chrono::seconds kFirstAnswers{20};

std::chrono::milliseconds interval_of(const TopOptions& options) {
  return std::chrono::milliseconds(static_cast<int64_t>(options.interval_s * 1000));
}

/// The step on all nodes, and what they have said.
class TopStep {
 public:
  TopStep(const Job& job, const std::string& yoke, const TopOptions& options, const Environment& environment) {
    for (const auto& host : expand_hostlist(job.node_list)) nodes_[host];
    auto out = make_pipe(), err = make_pipe();
    child_ = spawn({.argv = top_step(job, yoke, options),
                    .environment = without_outer_job(environment).to_strings(),
                    .in = kNullStream,
                    .out = out.write_end.value(),
                    .err = err.write_end.value(),
                    .process_group = 0,
                    .death_signal = SIGTERM});
    if (child_ < 0) throw system_error(errno, "starting srun");
    out_ = std::move(out.read_end);
    err_ = std::move(err.read_end);
  }
  TopStep(const TopStep&) = delete;
  TopStep& operator=(const TopStep&) = delete;
  ~TopStep() { end(); }

  /// Waits for news, but not long. Returns whether the step goes on.
  bool wait() {
    std::array<pollfd, 2> fds = {pollfd{out_.value(), POLLIN, 0}, pollfd{err_.value(), POLLIN, 0}};
    poll(fds.data(), fds.size(), 200);
    if (fds[0].revents != 0) is_open_ = read_lines();
    if (fds[1].revents != 0) read_errors();
    return is_open_;
  }

  bool has_all() const { return std::ranges::all_of(nodes_, has_answered); }
  bool has_any() const { return std::ranges::any_of(nodes_, has_answered); }

  std::map<std::string, TopNode> nodes() const {
    std::map<std::string, TopNode> result;
    for (const auto& [name, node] : nodes_) {
      result[name].rows = node.rows;
      if (node.last) result[name].age = Clock::now() - *node.last;
    }
    return result;
  }

  /// Ends srun, which ends its step. Returns its status.
  int end() {
    if (child_ < 0) return 0;
    const pid_t child = std::exchange(child_, -1);
    int status = 0;
    if (is_open_) kill(child, SIGTERM);
    for (int i = 0; i < 500; ++i) {
      if (waitpid(child, &status, WNOHANG) != 0) return shell_status(status);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return 128 + SIGKILL;
  }

  /// The last line of what srun said.
  std::string last_error() const {
    const auto lines = lines_of(errors_);
    return lines.empty() ? "it says nothing" : printable(lines.back());
  }

 private:
  struct Node {
    std::vector<DeviceRow> rows;
    std::optional<Clock::time_point> last;
  };

  static bool has_answered(const std::pair<const std::string, Node>& node) { return node.second.last.has_value(); }

  bool read_lines() {
    std::array<char, 1 << 16> buffer;
    const auto count = read(out_.value(), buffer.data(), buffer.size());
    if (count <= 0) return false;
    rest_.append(buffer.data(), static_cast<size_t>(count));
    size_t begin = 0;
    for (auto end = rest_.find('\n'); end != rest_.npos; begin = end + 1, end = rest_.find('\n', begin)) {
      auto sample = lines_.take(std::string_view(rest_).substr(begin, end - begin));
      if (sample && nodes_.contains(sample->node)) nodes_[sample->node] = {std::move(sample->rows), Clock::now()};
    }
    rest_.erase(0, begin);
    if (rest_.size() > buffer.size()) rest_.clear();
    return true;
  }

  void read_errors() {
    std::array<char, 4096> buffer;
    const auto count = read(err_.value(), buffer.data(), buffer.size());
    if (count > 0 && errors_.size() < (1 << 16)) errors_.append(buffer.data(), static_cast<size_t>(count));
  }

  pid_t child_ = -1;
  UniqueFd out_, err_;
  bool is_open_ = true;
  std::map<std::string, Node> nodes_;
  DeviceLines lines_;
  std::string rest_, errors_;
};

constexpr std::string_view kTopLine = "yoke-top";
constexpr size_t kLongestCell = 100;

/// A cell without tabs, of at most kLongestCell characters.
std::string cell(const std::string& text) { return fit(printable(text), kLongestCell); }
std::string cell(const std::optional<int64_t>& number) { return number ? fmt::format("{}", *number) : "-"; }

void add_row(const device::Device& one, const std::string& id, std::vector<DeviceRow>& rows) {
  rows.push_back({.id = id,
                  .name = one.facts.name,
                  .state = std::string(name(one.state)),
                  .utilization_percent = one.readings.utilization_percent,
                  .memory_used_bytes = one.readings.memory_used_bytes,
                  .memory_total_bytes = one.readings.memory_total_bytes,
                  .power_mw = one.readings.power_mw,
                  .temperature_celsius = one.readings.temperature_celsius,
                  .num_processes = static_cast<int64_t>(one.processes.size())});
}

}  // namespace

Job job_to_watch(const std::string& word, const Environment& environment) {
  const auto name = require_job_name(word);
  auto jobs = known_jobs(name, environment);
  if (jobs.empty()) {
    throw Error(ErrorCode::kNotFound, "slurmctld knows no job {}; `yoke slurm ps` lists the jobs that wait or run",
                to_text(name));
  }
  const auto num_known = jobs.size();
  const auto first = jobs.front();
  std::erase_if(jobs, [](const auto& job) { return job.state != "RUNNING"; });
  if (jobs.empty()) {
    const auto why = explain_reason(first.reason).meaning;
    throw Error(ErrorCode::kFailedPrecondition, "job {} is {}{}, so it has no nodes to watch", to_text(name),
                first.state,
                why.empty() || !first.is_waiting() ? "" : fmt::format(" ({}: {})", printable(first.reason), why));
  }
  if (jobs.size() > 1 || (num_known > 1 && !name.task)) {
    throw Error(ErrorCode::kInvalidArgument, "job {} is an array; name one task, as {}", to_text(name),
                jobs.front().id);
  }
  return jobs.front();
}

std::vector<std::string> top_step(const Job& job, const std::string& yoke, const TopOptions& options) {
  std::vector<std::string> argv = {"srun",
                                   fmt::format("--jobid={}", job.number),
                                   "--overlap",
                                   "--quiet",
                                   "--input=none",
                                   fmt::format("--nodes={}", job.num_nodes),
                                   fmt::format("--ntasks={}", job.num_nodes),
                                   "--ntasks-per-node=1",
                                   "--cpus-per-task=1",
                                   "--mem=0",
                                   "--cpu-bind=none",
                                   "--kill-on-bad-exit=0",
                                   yoke,
                                   "slurm",
                                   "top",
                                   "--on-node",
                                   "--interval",
                                   fmt::format("{}", options.interval_s)};
  if (options.is_once) argv.emplace_back("--once");
  argv.push_back(fmt::format("{}", job.number));
  return argv;
}

void stream_devices(device::Source& source, const std::string& node, const TopOptions& options,
                    const std::function<bool(const std::string& lines)>& print) {
  while (print(to_lines(node, device_rows(source.sample({})))) && !options.is_once) {
    std::this_thread::sleep_for(interval_of(options));
  }
}

std::string top_page(const Job& job, const std::map<std::string, TopNode>& nodes, std::chrono::duration<double> silence,
                     int64_t width) {
  Table table{.columns = {{"node"},
                          {"device"},
                          {"busy", Align::kRight},
                          {"memory", Align::kRight},
                          {"power", Align::kRight, 0, 2},
                          {"temp", Align::kRight, 0, 1},
                          {"processes", Align::kRight, 0, 3},
                          {"state"},
                          {"name", Align::kLeft, 8, 4}}};
  int64_t num_shown = 0;
  for (const auto& [name, node] : nodes) {
    num_shown += num_gpus(node.rows);
    if (!node.age || *node.age > silence) {
      const auto since = node.age ? " for " + format_duration(*node.age) : std::string();
      table.rows.push_back({name, "-", "-", "-", "-", "-", "-", "no answer" + since, ""});
      if (!node.age) continue;
    }
    auto shown = name;
    for (const auto& row : node.rows) {
      const auto percent = row.utilization_percent ? fmt::format("{} %", *row.utilization_percent) : "-";
      const auto memory =
          row.memory_used_bytes && row.memory_total_bytes
              ? fmt::format("{} / {}", format_bytes(*row.memory_used_bytes), format_bytes(*row.memory_total_bytes))
              : "-";
      table.rows.push_back({shown, row.id, percent, memory,
                            row.power_mw ? fmt::format("{} W", *row.power_mw / 1000) : "-",
                            row.temperature_celsius ? fmt::format("{} C", *row.temperature_celsius) : "-",
                            std::to_string(row.num_processes), row.state, row.name});
      shown.clear();
    }
  }
  const auto whose = whose_gpus(job.num_gpus, num_shown);
  return fmt::format("job {} ({}) of {}: {}\n{}{}", job.id, printable(job.name), printable(job.user),
                     counted(job.num_nodes, "node"), whose, whose.empty() ? "" : "\n") +
         to_text(table, width);
}

void watch_job(const Job& job, const std::string& yoke, const TopOptions& options, const Environment& environment,
               const TopScreen& screen, const Tell& tell) {
  const std::chrono::duration<double> silence(std::max(5.0, 3 * options.interval_s));
  TopStep step(job, yoke, options, environment);
  const auto draw = [&] { return screen.draw(top_page(job, step.nodes(), silence, screen.width())); };
  const auto begin = Clock::now();
  auto draw_at = begin;
  bool is_open = true;
  while (is_open) {
    is_open = step.wait();
    const bool has_all = step.has_all(), is_late = Clock::now() - begin > kFirstAnswers;
    if (options.is_once && (has_all || is_late)) break;
    if (options.is_once || Clock::now() < draw_at || (!has_all && !is_late && !screen.is_early)) continue;
    const bool is_watched = draw();
    draw_at = Clock::now() + interval_of(options);
    if (!is_watched) break;
  }
  const int status = step.end();
  if (!step.has_any()) {
    throw Error(ErrorCode::kUnavailable, "srun could not start a step on the nodes of job {} (status {}): {}", job.id,
                status, step.last_error());
  }
  if (options.is_once) draw();
  if (!options.is_once && !is_open) {
    tell(Told::kNews, fmt::format("job {} has ended, or its step was ended", job.id));
  }
}

std::vector<DeviceRow> device_rows(const device::Snapshot& snapshot) {
  std::vector<DeviceRow> rows;
  const auto is_gpu = [](const auto& one) { return one.vendor != device::Vendor::kCpu; };
  const bool has_gpu = std::ranges::any_of(snapshot.devices, is_gpu);
  for (const auto& one : snapshot.devices) {
    if (is_gpu(one) != has_gpu) continue;
    add_row(one, id_of(one), rows);
    for (const auto& instance : one.instances) add_row(instance, fmt::format("{}:{}", one.index, instance.index), rows);
  }
  return rows;
}

int64_t num_gpus(const std::vector<DeviceRow>& rows) {
  return std::ranges::count_if(rows,
                               [](const auto& row) { return row.id != "cpu" && row.id.find(':') == row.id.npos; });
}

std::string whose_gpus(int64_t num_of_job, int64_t num_shown) {
  if (num_shown <= num_of_job) return "";
  const auto own = num_of_job == 0 ? std::string("Slurm knows no GPU of this job")
                                   : fmt::format("The job has {} GPU{}", num_of_job, num_of_job == 1 ? "" : "s");
  return fmt::format("{}; the {} shown are all that its nodes let it open, and {} may belong to other jobs.", own,
                     num_shown, num_of_job == 0 ? "they" : "the others");
}

std::string to_lines(const std::string& node, const std::vector<DeviceRow>& rows) {
  std::string text;
  for (const auto& row : rows) {
    text +=
        fmt::format("{}\t{}\tdevice\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", kTopLine, cell(node), cell(row.id),
                    cell(row.name), cell(row.state), cell(row.utilization_percent), cell(row.memory_used_bytes),
                    cell(row.memory_total_bytes), cell(row.power_mw), cell(row.temperature_celsius), row.num_processes);
  }
  return text + fmt::format("{}\t{}\tend\n", kTopLine, cell(node));
}

std::optional<DeviceLines::Sample> DeviceLines::take(std::string_view line) {
  const auto cells = split(line, '\t');
  if (cells.size() < 3 || cells[0] != kTopLine) return std::nullopt;
  auto found = std::ranges::find(open_, cells[1], &Sample::node);
  if (found == open_.end()) found = open_.insert(open_.end(), Sample{std::string(cells[1]), {}});
  if (cells[2] == "end") {
    auto sample = std::move(*found);
    open_.erase(found);
    return sample;
  }
  if (cells[2] != "device" || cells.size() != 12 || found->rows.size() >= 1024) return std::nullopt;
  found->rows.push_back({.id = std::string(cells[3]),
                         .name = std::string(cells[4]),
                         .state = std::string(cells[5]),
                         .utilization_percent = parse_int(cells[6]),
                         .memory_used_bytes = parse_int(cells[7]),
                         .memory_total_bytes = parse_int(cells[8]),
                         .power_mw = parse_int(cells[9]),
                         .temperature_celsius = parse_int(cells[10]),
                         .num_processes = parse_int(cells[11]).value_or(0)});
  return std::nullopt;
}

}  // namespace yoke::slurm
