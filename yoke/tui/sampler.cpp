#include "yoke/tui/sampler.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"

namespace yoke::tui {

struct AncestorReader::Exchange {
  std::mutex mutex;
  std::set<int64_t> parents;  ///< The parents of the listed processes.
  Processes answer;
};

namespace {

constexpr std::chrono::milliseconds kAncestorLimit(200);

Processes read_chain(const std::set<int64_t>& parents, const std::filesystem::path& proc) {
  Processes known;
  for (auto pid : parents) {
    while (pid > 1 && !known.contains(pid)) {
      const auto& info = known[pid] = device::describe_process(pid, proc);
      pid = info.parent_pid.value_or(0);
    }
  }
  return known;
}

Sample read_sample(device::Source& source, const SamplerOptions& options, const WantOfPage& want,
                   std::optional<AncestorReader>& ancestors) {
  Sample sample{.snapshot = source.sample(want.devices)};
  sample.has_processes = want.devices.processes;
  if (options.is_recording) return sample;  // it may be from a different machine
  sample.host = read_host(options.sysroot);
  if (options.read_claims) sample.claims = options.read_claims(sample.snapshot);
  if (want.ancestors) {
    if (!ancestors) ancestors.emplace(options.sysroot / "proc");
    sample.ancestors = ancestors->read(sample.snapshot, kAncestorLimit);
  }
  return sample;
}

bool is_more(const WantOfPage& now, const WantOfPage& before) {
  const auto& a = now.devices;
  const auto& b = before.devices;
  return (a.processes && !b.processes) || (a.details && !b.details) || (a.origins && !b.origins) ||
         (a.process_utilization && !b.process_utilization) || (now.ancestors && !before.ancestors);
}

}  // namespace

std::optional<std::array<double, 3>> parse_loadavg(std::string_view text) {
  const auto words = words_of(text);
  std::array<double, 3> load = {};
  if (words.size() < load.size()) return {};
  for (size_t i = 0; i < load.size(); ++i) {
    const auto result = std::from_chars(words[i].begin(), words[i].end(), load[i]);
    if (result.ec != std::errc() || !(load[i] >= 0)) return {};
  }
  return load;
}

Host parse_meminfo(std::string_view text) {
  const auto numbers = parse_properties(text);
  const auto total = numbers.find("SwapTotal"), free = numbers.find("SwapFree");
  if (total == numbers.end() || free == numbers.end()) return {};
  if (free->second < 0 || free->second > total->second) return {};
  return {.swap_total_bytes = total->second * 1024, .swap_used_bytes = (total->second - free->second) * 1024};
}

Host read_host(const std::filesystem::path& sysroot) {
  auto host = parse_meminfo(yoke::text_of(sysroot / "proc/meminfo"));
  host.load = parse_loadavg(yoke::text_of(sysroot / "proc/loadavg"));
  return host;
}

AncestorReader::AncestorReader(const std::filesystem::path& proc)
    : exchange_(std::make_shared<Exchange>()), worker_([exchange = exchange_, proc] {
        std::set<int64_t> parents;
        {
          const std::lock_guard lock(exchange->mutex);
          parents = exchange->parents;
        }
        auto answer = read_chain(parents, proc);
        const std::lock_guard lock(exchange->mutex);
        exchange->answer = std::move(answer);
      }) {}

Processes AncestorReader::read(const device::Snapshot& snapshot, std::chrono::milliseconds limit) {
  if (!worker_.is_busy()) {
    std::set<int64_t> parents;
    device::for_each_device(snapshot, [&](const device::Device& device, const auto&) {
      for (const auto& process : device.processes) {
        if (process.info.parent_pid) parents.insert(*process.info.parent_pid);
      }
    });
    {
      const std::lock_guard lock(exchange_->mutex);
      exchange_->parents = std::move(parents);
    }
    worker_.request();
    worker_.wait_until(device::Worker::Clock::now() + limit);
  }
  const std::lock_guard lock(exchange_->mutex);
  return exchange_->answer;
}

Sample take_sample(device::Source& source, const SamplerOptions& options, const WantOfPage& want) {
  std::optional<AncestorReader> ancestors;
  return read_sample(source, options, want, ancestors);
}

Sampler::Sampler(device::Source& source, const SamplerOptions& options, const WantOfPage& want)
    : source_(source), options_(options), ready_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), want_(want) {
  if (!ready_) throw system_error(errno, "making an eventfd");
  thread_ = std::thread([this] { run(); });
}

Sampler::~Sampler() {
  {
    const std::lock_guard lock(mutex_);
    must_stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Sampler::set_want(const WantOfPage& want) {
  const std::lock_guard lock(mutex_);
  is_more_wanted_ = is_more_wanted_ || is_more(want, want_);
  want_ = want;
  if (is_more_wanted_) changed_.notify_all();
}

std::optional<Sample> Sampler::take() {
  uint64_t count = 0;
  [[maybe_unused]] const auto size = read(ready_.value(), &count, sizeof count);
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(ErrorCode::kInternal, "sampling the devices: {}", *failure_);
  return std::exchange(latest_, std::nullopt);
}

void Sampler::deliver(Sample sample) {
  {
    const std::lock_guard lock(mutex_);
    latest_ = std::move(sample);
  }
  const uint64_t one = 1;
  [[maybe_unused]] const auto size = write(ready_.value(), &one, sizeof one);
}

bool Sampler::pause_until(Clock::time_point time, bool wakes_on_want) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, time, [&] { return must_stop_ || (wakes_on_want && is_more_wanted_); });
  is_more_wanted_ = false;
  return !must_stop_;
}

void Sampler::run() noexcept {
  try {
    options_.is_recording ? play_recording() : sample_live();
  } catch (const std::exception& error) {
    {
      const std::lock_guard lock(mutex_);
      failure_ = error.what();
    }
    const uint64_t one = 1;
    [[maybe_unused]] const auto size = write(ready_.value(), &one, sizeof one);
  }
}

void Sampler::sample_live() {
  std::optional<AncestorReader> ancestors;
  auto next = Clock::now();
  do {
    WantOfPage want;
    {
      const std::lock_guard lock(mutex_);
      want = want_;
    }
    deliver(read_sample(source_, options_, want, ancestors));
    next = std::max(next + options_.interval, Clock::now());
  } while (pause_until(next, true));
}

void Sampler::play_recording() {
  auto sample = take_sample(source_, options_, {.devices = device::Want::everything()});
  deliver(sample);
  for (;;) {
    auto upcoming = take_sample(source_, options_, {.devices = device::Want::everything()});
    if (upcoming.snapshot.time == sample.snapshot.time) break;
    constexpr std::chrono::milliseconds kShortest(20), kLongest(10'000);  // limits, whatever pauses the recording has
    const auto pause =
        std::chrono::duration_cast<std::chrono::milliseconds>(upcoming.snapshot.time - sample.snapshot.time);
    if (!pause_until(Clock::now() + std::clamp(pause, kShortest, kLongest), false)) return;
    sample = std::move(upcoming);
    deliver(sample);
  }
  sample.is_last = true;
  deliver(std::move(sample));
}

}  // namespace yoke::tui
