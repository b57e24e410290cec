// `yoke slurm sample`: writes what a job uses on this node into a small file, for `yoke slurm report`.
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <csignal>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/host.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/cli/options/value.h"
#include "yoke/cli/slurm.h"
#include "yoke/device/source.h"
#include "yoke/device/usage_report.h"
#include "yoke/device/visibility/visibility.h"
#include "yoke/program/watched_program.h"
#include "yoke/slurm/job/job_folder.h"
#include "yoke/slurm/job/job_meter.h"
#include "yoke/slurm/job/samples.h"

namespace yoke::cli {
namespace {

using SampleSeconds = std::chrono::duration<double>;

struct SlurmSampleArgs {
  double interval_s = 10;
  bool until_eof = false;
};

/// The drivers are opened this long after `yoke run` has started its ranks, so that they do not wait for each other.
constexpr SampleSeconds kSampleDelay{2};
constexpr SampleSeconds kShortestWritePause{10}, kLongestWritePause{60};

std::set<std::string> visible_gpu_ids(const Environment& environment, const device::Snapshot& snapshot) {
  std::set<std::string> ids;
  for (const auto& device : device::visibility(environment, snapshot).devices) {
    if (!device.ordinal) continue;
    ids.insert(device.id);
  }
  return ids;
}

int64_t num_allowed_cpus() {
  // A task may be bound to fewer CPUs than the job has on its node, which Slurm tells.
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

/// The CPUs of the job on this node, from SLURM_JOB_CPUS_PER_NODE ("8(x2),4") if all nodes have as many, or
/// SLURM_CPUS_ON_NODE.
int64_t job_cpus(const Environment& environment) {
  const auto list = environment.value_or("SLURM_JOB_CPUS_PER_NODE", "");
  if (const auto number = parse_int(std::string_view(list).substr(0, list.find('(')));
      number && list.find(',') == list.npos) {
    return *number;
  }
  const auto here = parse_int(environment.value_or("SLURM_CPUS_ON_NODE", ""));
  return here ? *here : num_allowed_cpus();
}

class NodeSampler {
 public:
  NodeSampler(int64_t job, std::string folder, double interval_s, const Environment& environment)
      : folder_(std::move(folder)), environment_(environment), interval_(interval_s), meter_(job) {
    sample_.cluster = environment.value_or("SLURM_CLUSTER_NAME", "");
    sample_.job = job;
    sample_.step = environment.value_or("SLURM_STEP_ID", "batch");
    sample_.restart = parse_int(environment.value_or("SLURM_RESTART_COUNT", "0")).value_or(0);
    sample_.host = environment.value_or("SLURMD_NODENAME", host_name());
    sample_.num_cpus = job_cpus(environment);
    sample_.num_host_cpus = std::max<int64_t>(1, std::thread::hardware_concurrency());
    path_ = fmt::format("{}/{}.{}.{}.{}.json", folder_, sample_.host, sample_.step, sample_.restart, getpid());
    std::ranges::replace(path_.begin() + static_cast<std::ptrdiff_t>(folder_.size()) + 1, path_.end(), '/', '_');
  }

  /// Opens the drivers and takes the first sample.
  void begin() {
    source_ = device::make_live_source({.with_cpu = false});
    const auto first = source_->sample({.processes = false, .details = true});
    visible_ = visible_gpu_ids(environment_, first);
    recorder_.emplace(device::UsageRecorder::Options{
        .interval = interval_, .is_watched = [this](const std::string& id) { return visible_.contains(id); }});
    begun_ = Clock::now();
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    sample_.begin = std::chrono::duration_cast<SampleSeconds>(now).count();
    cpu_at_begin_ = meter_.read().cpu_seconds;
    recorder_->add(device::Seconds(0), first, [](const auto&) { return false; });
    next_ = begun_ + std::chrono::seconds(1);
    write_at_ = begun_;
  }
  bool has_begun() const { return recorder_.has_value(); }

  int milliseconds_left() const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next_ - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left + 1, 0, 3'600'000));
  }

  void sample_if_due() {
    if (Clock::now() < next_) return;
    take();
    // The first samples are closer to each other, because short jobs deserve a report too.
    const SampleSeconds age = Clock::now() - begun_;
    const auto pause = std::min(interval_, std::max(SampleSeconds(1), age / 2));
    next_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(pause);
    if (Clock::now() < write_at_) return;
    write();
    const auto write_pause = std::clamp(age / 10, kShortestWritePause, kLongestWritePause);
    write_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(write_pause);
  }

  void finish() {
    if (!has_begun()) return;
    take();
    sample_.is_finished = true;
    write();
  }

  bool has_stuck_worker() const { return source_ && source_->has_stuck_worker(); }

 private:
  void take() {
    const device::Seconds time = Clock::now() - begun_;
    recorder_->add(time, source_->sample({.processes = false, .details = true}), [](const auto&) { return false; });
    const auto reading = meter_.read();
    sample_.seconds = time.count();
    ++sample_.num_samples;
    sample_.cpu_seconds = std::max(0.0, reading.cpu_seconds - cpu_at_begin_);
    sample_.memory_peak_bytes = std::max(sample_.memory_peak_bytes.value_or(0), reading.memory_bytes);
    sample_.memory_limit_bytes = meter_.memory_limit_bytes();
    sample_.memory_with_files_peak_bytes = meter_.memory_with_files_peak_bytes();
    sample_.num_oom_kills = meter_.num_oom_kills();
    sample_.source = meter_.source();
    sample_.devices = slurm::device_samples(recorder_->report(time));
    if (visible_.empty()) sample_.devices.clear();
  }

  /// A full disk must not disturb the job. The first failure is told.
  void write() {
    try {
      make_private_folder(folder_);
      const auto text = to_json(sample_).dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
      replace_file(path_, text, 0600);
    } catch (const std::exception& error) {
      if (!std::exchange(has_told_, true)) {
        std::cerr << "yoke slurm sample: no samples of this job are kept: " << printable(error.what()) << std::endl;
      }
    }
  }

  const std::string folder_;
  const Environment& environment_;
  const SampleSeconds interval_;
  slurm::JobMeter meter_;
  slurm::NodeSample sample_;
  std::string path_;
  std::unique_ptr<device::Source> source_;
  std::set<std::string> visible_;
  std::optional<device::UsageRecorder> recorder_;
  double cpu_at_begin_ = 0;
  Clock::time_point begun_, next_, write_at_;
  bool has_told_ = false;
};

/// Samples until standard input ends: `yoke run` holds the other end, and closes it before it ends.
[[noreturn]] void sample_until_eof(NodeSampler& sampler) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) signal(number, SIG_IGN);
  pollfd end{STDIN_FILENO, POLLIN, 0};
  const auto delay = std::chrono::duration_cast<std::chrono::milliseconds>(kSampleDelay);
  if (poll(&end, 1, static_cast<int>(delay.count())) == 0) {
    sampler.begin();
    while (poll(&end, 1, sampler.milliseconds_left()) == 0) sampler.sample_if_due();
    sampler.finish();
  }
  _exit(0);  // a driver may hold a thread
}

int sample_program(NodeSampler& sampler, const Context& context) {
  const auto& argv = context.rest;
  program::WatchedProgram program(argv);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  program::SignalMessages messages;
  sampler.begin();
  if (const int error = program.start(); error != 0) {
    std::cerr << "yoke slurm sample: " << printable(system_error(error, "cannot run " + argv[0]).what()) << std::endl;
    return error == ENOENT ? 127 : 126;
  }
  while (true) {
    program.reap();
    if (program.status()) break;
    pollfd poll_fd{messages.fd(), POLLIN, 0};
    poll(&poll_fd, 1, sampler.milliseconds_left());
    while (const auto message = messages.next()) {
      if (message->signal != SIGCHLD && message->is_from_process) kill(program.pid(), message->signal);
    }
    sampler.sample_if_due();
  }
  sampler.finish();
  if (sampler.has_stuck_worker()) _exit(*program.status());
  return *program.status();
}

int run_slurm_sample(const SlurmSampleArgs& args, const Context& context) {
  if (context.rest.empty() && !args.until_eof) {
    throw Error(ErrorCode::kInvalidArgument, "give a program, as in `yoke slurm sample -- python train.py`");
  }
  const auto job = parse_int(context.environment.value_or("SLURM_JOB_ID", ""));
  const auto folder = slurm::samples_folder(context.environment);
  if (!job || *job <= 0 || !folder) {
    if (args.until_eof) return kExitOk;
    // A script that is tried outside of a job must work there too.
    std::cerr
        << (folder ? "yoke slurm sample: this is not a job of Slurm (SLURM_JOB_ID is not set), so nothing is sampled\n"
                   : "yoke slurm sample: there is no folder for samples (HOME, YOKE_SLURM_SAMPLES), so nothing is "
                     "sampled\n");
    execvp(context.rest[0].c_str(), exec_pointers(context.rest).data());
    const int error = errno;
    std::cerr << "yoke slurm sample: " << printable(system_error(error, "cannot run " + context.rest[0]).what())
              << '\n';
    return error == ENOENT ? 127 : 126;
  }
  NodeSampler sampler(*job, fmt::format("{}/{}", *folder, *job), args.interval_s, context.environment);
  if (args.until_eof) sample_until_eof(sampler);
  return sample_program(sampler, context);
}

}  // namespace

void add_slurm_sample(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<SlurmSampleArgs>();  // CLI11 keeps references to *args; the callback owns it
  add_number(cmd, "--interval", args->interval_s, {"SECONDS", 1, 3600}, "Time between two samples");
  cmd.add_flag("--until-eof", args->until_eof,
               "Without a program: sample until standard input ends, as `yoke run` asks");
  add_program(cmd, "PROGRAM", "What to run, with its arguments; every word from here on is its own");
  cmd.footer(
      examples("  srun --ntasks-per-node=1 yoke slurm sample -- torchrun train.py    on each node of a job\n"
               "  yoke slurm sample -- python train.py                               in a script for one node\n"
               "\n"
               "`yoke run` samples by itself in a job; YOKE_SLURM_SAMPLES=0 turns that off, and\n"
               "YOKE_SLURM_SAMPLES=FOLDER chooses the folder, which all nodes must share.\n"
               "\n"
               "The exit status is the program's: 128 and the signal's number if a signal ended it,\n"
               "127 if it is not found."));
  cmd.callback([args, &context] { context.exit_code = run_slurm_sample(*args, context); });
}

}  // namespace yoke::cli
