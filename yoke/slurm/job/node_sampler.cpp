#include "yoke/slurm/job/node_sampler.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/host.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/device/cpu/count.h"
#include "yoke/device/visibility/visibility.h"
#include "yoke/program/watched_program.h"
#include "yoke/slurm/job/job_folder.h"

namespace yoke::slurm {
namespace {

using SampleSeconds = std::chrono::duration<double>;

constexpr SampleSeconds kShortestWritePause{10}, kLongestWritePause{60};

std::set<std::string> visible_gpu_ids(const Environment& environment, const device::Snapshot& snapshot) {
  std::set<std::string> ids;
  for (const auto& device : device::visibility(environment, snapshot).devices) {
    if (device.ordinal) ids.insert(device.id);
  }
  return ids;
}

/// The CPUs of the job on this node, from SLURM_JOB_CPUS_PER_NODE ("8(x2),4") if all nodes have as many, or
/// SLURM_CPUS_ON_NODE. A task may be bound to fewer.
int64_t job_cpus(const Environment& environment) {
  const auto list = environment.value_or("SLURM_JOB_CPUS_PER_NODE", "");
  if (const auto number = parse_int(std::string_view(list).substr(0, list.find('(')));
      number && list.find(',') == list.npos) {
    return *number;
  }
  const auto here = parse_int(environment.value_or("SLURM_CPUS_ON_NODE", ""));
  return here ? *here : device::count_cpus().num_cpus;
}

/// Tells why a program cannot be run. Returns the exit status.
int tell_failure(int error, const std::string& program, const Tell& tell) {
  tell(Told::kNews, printable(system_error(error, "cannot run " + program).what()));
  return error == ENOENT ? 127 : 126;
}

}  // namespace

NodeSampler::NodeSampler(NodeSamplerOptions options, const Environment& environment, const Tell& tell)
    : options_(std::move(options)), environment_(environment), tell_(tell), meter_(options_.job) {
  sample_.cluster = environment.value_or("SLURM_CLUSTER_NAME", "");
  sample_.job = options_.job;
  sample_.step = environment.value_or("SLURM_STEP_ID", "batch");
  sample_.restart = parse_int(environment.value_or("SLURM_RESTART_COUNT", "0")).value_or(0);
  sample_.host = environment.value_or("SLURMD_NODENAME", host_name());
  sample_.num_cpus = job_cpus(environment);
  sample_.num_host_cpus = std::max<int64_t>(1, std::thread::hardware_concurrency());
  auto name = fmt::format("{}.{}.{}.{}.json", sample_.host, sample_.step, sample_.restart, getpid());
  std::ranges::replace(name, '/', '_');
  path_ = options_.folder + '/' + name;
}

void NodeSampler::begin() {
  source_ = options_.open();
  const auto first = source_->sample({.processes = false, .details = true});
  visible_ = visible_gpu_ids(environment_, first);
  recorder_.emplace(device::UsageRecorder::Options{
      .interval = options_.interval, .is_watched = [this](const std::string& id) { return visible_.contains(id); }});
  begun_ = Clock::now();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  sample_.begin = std::chrono::duration_cast<SampleSeconds>(now).count();
  cpu_at_begin_ = meter_.read().cpu_seconds;
  recorder_->add(device::Seconds(0), first, [](const auto&) { return false; });
  next_ = begun_ + std::chrono::seconds(1);
  write_at_ = begun_;
}

int NodeSampler::milliseconds_left() const {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next_ - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left + 1, 0, 3'600'000));
}

void NodeSampler::sample_if_due() {
  if (Clock::now() < next_) return;
  take();
  // The first samples are closer to each other, because short jobs deserve a report too.
  const SampleSeconds age = Clock::now() - begun_;
  const auto pause = std::min(options_.interval, std::max(SampleSeconds(1), age / 2));
  next_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(pause);
  if (Clock::now() < write_at_) return;
  write();
  const auto write_pause = std::clamp(age / 10, kShortestWritePause, kLongestWritePause);
  write_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(write_pause);
}

void NodeSampler::finish() {
  if (!has_begun()) return;
  take();
  sample_.is_finished = true;
  write();
}

void NodeSampler::take() {
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
  sample_.devices = device_samples(recorder_->report(time));
  if (visible_.empty()) sample_.devices.clear();
}

void NodeSampler::write() {
  try {
    make_private_folder(options_.folder);
    const auto text = to_json(sample_).dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    replace_file(path_, text, 0600);
  } catch (const std::exception& error) {
    if (std::exchange(has_told_, true)) return;
    tell_(Told::kNews, fmt::format("no samples of this job are kept: {}", printable(error.what())));
  }
}

void sample_until_eof(NodeSampler& sampler, int fd, std::chrono::milliseconds delay) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) signal(number, SIG_IGN);
  pollfd end{fd, POLLIN, 0};
  if (poll(&end, 1, static_cast<int>(delay.count())) != 0) return;
  sampler.begin();
  while (poll(&end, 1, sampler.milliseconds_left()) == 0) sampler.sample_if_due();
  sampler.finish();
}

int sample_program(NodeSampler& sampler, const std::vector<std::string>& argv, const Tell& tell) {
  program::WatchedProgram program(argv);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  program::SignalMessages messages;
  sampler.begin();
  if (const int error = program.start(); error != 0) return tell_failure(error, argv[0], tell);
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
  return *program.status();
}

int become_program(const std::vector<std::string>& argv, const Tell& tell) {
  execvp(argv[0].c_str(), exec_pointers(argv).data());
  return tell_failure(errno, argv[0], tell);
}

JobSampler::JobSampler(const std::filesystem::path& yoke, const Environment& environment) {
  if (!environment.contains("SLURM_JOB_ID") || !samples_folder(environment)) return;
  try {
    auto pipe = make_pipe();
    child_ = spawn({.argv = {yoke.string(), "slurm", "sample", "--until-eof"},
                    .environment = environment.to_strings(),
                    .in = pipe.read_end.value(),
                    .out = kNullStream,
                    .process_group = 0});  // Ctrl-C does not reach it
    if (child_ > 0) end_ = std::move(pipe.write_end);
  } catch (const Error&) {  // out of descriptors
  }
}

JobSampler::~JobSampler() {
  if (child_ <= 0) return;
  end_.reset();
  for (int i = 0; i < 100; ++i) {
    if (waitpid(child_, nullptr, WNOHANG) != 0) return;
    poll(nullptr, 0, 10);
  }
  kill(child_, SIGKILL);  // a driver or a file system holds it
}

}  // namespace yoke::slurm
