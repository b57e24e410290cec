#include "yoke/device/usage_sampling.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "yoke/base/sysfs.h"
#include "yoke/device/process/info.h"
#include "yoke/device/uses.h"
#include "yoke/device/visibility/visibility.h"

namespace yoke::device {
namespace {

constexpr Want kWant{.details = true};

/// Returns the ids of the GPUs that a program with this environment sees, or of the CPU if there is no GPU.
std::set<std::string> visible_ids(const Environment& environment, const Snapshot& snapshot) {
  std::set<std::string> ids;
  for (const auto& device : visibility(environment, snapshot).devices) {
    if (!device.ordinal) continue;
    ids.insert(device.id);
  }
  const auto is_gpu = [](const auto& device) { return device.vendor != Vendor::kCpu; };
  if (std::ranges::none_of(snapshot.devices, is_gpu)) ids.insert("cpu");
  return ids;
}

}  // namespace

bool Family::contains(const DeviceProcess& process) {
  if (!process.info.is_visible.value_or(false)) return false;
  const auto [known, is_new] = known_.try_emplace({process.pid, process.info.start_ticks.value_or(0)}, false);
  if (is_new) known->second = descends(process.pid);
  return known->second;
}

bool Family::descends(int64_t pid) const {
  const int64_t self = getpid();  // this process is a subreaper: orphans of the program become its children
  for (int depth = 0; pid > 1 && depth < 100; ++depth) {
    if (pid == root_ || pid == self) return true;
    const auto stat = parse_process_stat(read_text(fmt::format("/proc/{}/stat", pid)).value_or(""));
    if (!stat) return false;
    pid = stat->parent_pid;
  }
  return false;
}

UsageSampling::UsageSampling(Source& source, UsageSamplingOptions options)
    : source_(source), options_(std::move(options)), family_(options_.pid) {
  // The first sample may be slow, because drivers start and names are looked up. Recording begins with the second.
  source.sample(kWant);
  const auto first = source.sample(kWant);
  visible_ = visible_ids(options_.environment, first);
  has_gpu_ = !visible_.contains("cpu");
  UsageRecorder::Options recording{.goal_percent = options_.goal_percent, .interval = options_.interval};
  // GPUs that environment variables hide from the program are watched too, because the program may change the variables
  // for its children.
  recording.is_watched = [has_gpu = has_gpu_](const std::string& id) { return (id != "cpu") == has_gpu; };
  recorder_ = std::make_unique<UsageRecorder>(recording);
  add(Seconds(0), first);
}

void UsageSampling::start() {
  begun_ = Clock::now();
  thread_ = std::thread([this] { work(); });
}

void UsageSampling::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

UsageReport UsageSampling::report() const {
  auto report = recorder_->report(duration_);
  const auto& all = report.devices;
  const bool is_any_used = std::ranges::any_of(all, [](const auto& usage) { return usage.was_used; });
  if (!is_any_used && has_gpu_) {
    std::erase_if(report.devices, [&](const auto& usage) { return !visible_.contains(usage.id); });
  }
  return report;
}

void UsageSampling::add(Seconds time, const Snapshot& snapshot) {
  has_seen_silence_ = has_seen_silence_ || !unanswered_of(snapshot).empty();
  recorder_->add(time, snapshot, [this](const DeviceProcess& process) {
    has_seen_strangers_ = has_seen_strangers_ || process.info.is_visible == false;
    return family_.contains(process);
  });
}

void UsageSampling::work() {
  auto next = begun_;
  for (bool is_last = false; !is_last;) {
    next = std::max(next + std::chrono::duration_cast<Clock::duration>(options_.interval), Clock::now());
    std::unique_lock lock(mutex_);
    is_last = changed_.wait_until(lock, next, [this] { return is_stopped_; });
    lock.unlock();
    duration_ = Clock::now() - begun_;
    try {
      add(duration_, source_.sample(kWant));
    } catch (const std::exception&) {  // out of memory or descriptors: the recording gets a gap
    }
  }
}

}  // namespace yoke::device
