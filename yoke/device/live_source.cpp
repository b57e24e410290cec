#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>

#include "yoke/base/format.h"
#include "yoke/base/host.h"
#include "yoke/device/detail/backend.h"
#include "yoke/device/source.h"
#include "yoke/device/worker.h"

namespace yoke::device {
namespace {

/// State shared by a worker and the source. A shared_ptr owns it, because a stuck worker outlives the source.
template <typename Answer>
struct Exchange {
  std::mutex mutex;
  Want want;
  Answer answer;

  void put(const Answer& value) {
    const std::lock_guard lock(mutex);
    answer = value;
  }
  Answer take() {
    const std::lock_guard lock(mutex);
    return answer;
  }
};

/// One device and its worker.
class DeviceReader {
 public:
  DeviceReader(const std::shared_ptr<Crew>& crew, std::shared_ptr<Backend> backend, int64_t number,
               const std::filesystem::path& proc)
      : vendor_(backend->vendor()), worker_(crew, [backend = std::move(backend), number, proc, exchange = exchange_] {
          Device device;
          device.vendor = backend->vendor();
          Want want;
          {
            const std::lock_guard lock(exchange->mutex);
            want = exchange->want;
          }
          const auto publish = [&](const Device& partial) { exchange->put(partial); };
          backend->read(number, want, device, publish);
          if (want.processes) {
            // Reading /proc/PID may block too, if the process hangs in a driver.
            publish(device);
            describe_processes(device, want, proc);
          }
          publish(device);
        }) {}

  void request(const Want& want) {
    if (worker_.is_busy()) return;
    {
      const std::lock_guard lock(exchange_->mutex);
      exchange_->want = want;
      exchange_->answer.reset();
    }
    is_asked_ = true;
    worker_.request();
  }

  /// Returns what was read until `deadline`, even if it is only the first part. If nothing was read, returns a device
  /// in state kNoAnswer.
  Device collect(Worker::Clock::time_point deadline) {
    if (std::exchange(is_asked_, false)) {
      worker_.wait_until(deadline);
      if (auto device = exchange_->take()) {
        last_facts_ = device->facts;
        return *std::move(device);
      }
    }
    Device silent{.vendor = vendor_, .state = State::kNoAnswer, .facts = last_facts_};
    silent.reason = fmt::format("the driver has not answered for {}", format_duration(worker_.busy_for()));
    if (vendor_ == Vendor::kNvidia && last_facts_.uuid.empty()) {
      silent.reason += "; without persistence mode a sleeping GPU takes some seconds (--deadline waits longer)";
    }
    return silent;
  }

  bool is_stuck() const { return worker_.is_busy(); }

 private:
  static void describe_processes(Device& device, const Want& want, const std::filesystem::path& proc);

  const Vendor vendor_;
  std::shared_ptr<Exchange<std::optional<Device>>> exchange_ = std::make_shared<Exchange<std::optional<Device>>>();
  bool is_asked_ = false;  ///< False if the worker was still busy with an earlier sample, so it was not asked now.
  Facts last_facts_;
  Worker worker_;
};

void DeviceReader::describe_processes(Device& device, const Want& want, const std::filesystem::path& proc) {
  for (auto& process : device.processes) {
    process.info = describe_process(process.pid, proc);
    if (want.origins) process.origin = origin_of_process(process.pid, proc);
  }
  for (auto& instance : device.instances) describe_processes(instance, want, proc);
}

/// Reads one backend. A worker opens the backend; then each of its devices has a DeviceReader.
class BackendReader {
 public:
  BackendReader(const std::shared_ptr<Crew>& crew, std::unique_ptr<Backend> backend, std::filesystem::path proc)
      : crew_(crew),
        backend_(std::move(backend)),
        proc_(std::move(proc)),
        opener_(crew, [backend = backend_, exchange = exchange_] { exchange->put(backend->open()); }) {
    opener_.request();
  }

  void wait_for_open(Worker::Clock::time_point deadline) {
    if (is_open_) return;
    // After one timeout, later samples check for an answer without waiting.
    if (has_timed_out_) deadline = Worker::Clock::now();
    if (!opener_.wait_until(deadline)) {
      has_timed_out_ = true;
      return;
    }
    is_open_ = true;
    for (int64_t i = 0; i < backend_->num_devices(); ++i) {
      devices_.push_back(std::make_unique<DeviceReader>(crew_, backend_, i, proc_));
    }
  }

  int64_t num_devices() const { return static_cast<int64_t>(devices_.size()); }

  /// `first_index` is the index of this backend's first device.
  void request(const Want& want, const DeviceSelection& selection, int64_t first_index) {
    for (int64_t i = 0; i < num_devices(); ++i) {
      if (selection.may_name(place(i, first_index))) devices_[static_cast<size_t>(i)]->request(want);
    }
  }

  void collect(Worker::Clock::time_point deadline, const DeviceSelection& selection, int64_t first_index,
               Snapshot& snapshot) {
    for (int64_t i = 0; i < num_devices(); ++i) {
      if (!selection.may_name(place(i, first_index))) {
        snapshot.unasked.push_back(place(i, first_index));
        continue;
      }
      auto& device = snapshot.devices.emplace_back(devices_[static_cast<size_t>(i)]->collect(deadline));
      device.index = first_index + i;
    }
    if (is_open_) {
      snapshot.backends.push_back(exchange_->take());
      return;
    }
    auto& report = snapshot.backends.emplace_back();
    report.backend = backend_->name();
    report.has_answered = false;
    report.reason = fmt::format("the driver has not answered for {}", format_duration(opener_.busy_for()));
  }

  bool is_stuck() const {
    const auto is_stuck = [](const auto& device) { return device->is_stuck(); };
    return !is_open_ || std::ranges::any_of(devices_, is_stuck);
  }

 private:
  DevicePlace place(int64_t number, int64_t first_index) const {
    return {.vendor = backend_->vendor(), .index = first_index + number, .number = number};
  }

  const std::shared_ptr<Crew> crew_;
  std::shared_ptr<Backend> backend_;
  const std::filesystem::path proc_;
  std::shared_ptr<Exchange<BackendReport>> exchange_ = std::make_shared<Exchange<BackendReport>>();
  Worker opener_;
  bool is_open_ = false;
  bool has_timed_out_ = false;
  std::vector<std::unique_ptr<DeviceReader>> devices_;
};

class LiveSource : public Source {
 public:
  explicit LiveSource(const SourceOptions& options) : deadline_(options.deadline), selection_(options.selection) {
    const auto proc = options.sysroot / "proc";
    const auto add = [&](std::unique_ptr<Backend> backend) {
      backends_.push_back(std::make_unique<BackendReader>(crew_, std::move(backend), proc));
    };
    const bool may_be_amd = options.with_amdgpu && selection_.may_name(Vendor::kAmd);
    // AMD's GPUs are numbered after NVIDIA's GPUs, so NVIDIA's GPUs must be counted.
    const bool may_be_nvidia = options.with_nvml && (may_be_amd || selection_.may_name(Vendor::kNvidia));
    if (may_be_nvidia) add(make_nvml_backend(options.sysroot));
    if (may_be_amd) add(make_amdgpu_backend(options.sysroot));
    if (options.with_cpu) add(make_cpu_backend(options.sysroot));
  }

  Snapshot sample(const Want& want) override {
    const auto open_deadline = Worker::Clock::now() + deadline_;
    Snapshot snapshot{.time = std::chrono::system_clock::now()};
    snapshot.host = host_name();
    for (const auto& backend : backends_) backend->wait_for_open(open_deadline);
    // If one driver was slow or has not answered open(), the other drivers still get half of the deadline to read.
    const auto deadline = std::max(open_deadline, Worker::Clock::now() + deadline_ / 2);
    for_each_backend([&](BackendReader& backend, int64_t first) { backend.request(want, selection_, first); });
    for_each_backend(
        [&](BackendReader& backend, int64_t first) { backend.collect(deadline, selection_, first, snapshot); });
    return snapshot;
  }

  bool has_stuck_worker() const override {
    return std::ranges::any_of(backends_, [](const auto& backend) { return backend->is_stuck(); });
  }

 private:
  /// Calls `visit` for each backend with the index of its first device.
  void for_each_backend(const std::function<void(BackendReader&, int64_t first_index)>& visit) {
    int64_t first_index = 0;
    for (const auto& backend : backends_) {
      visit(*backend, first_index);
      first_index += backend->num_devices();
    }
  }

  const std::chrono::milliseconds deadline_;
  const DeviceSelection selection_;
  const std::shared_ptr<Crew> crew_ = std::make_shared<Crew>();
  std::vector<std::unique_ptr<BackendReader>> backends_;
};

}  // namespace

std::unique_ptr<Source> make_live_source(const SourceOptions& options) { return std::make_unique<LiveSource>(options); }

Snapshot sample(const Want& want, const SourceOptions& options) { return make_live_source(options)->sample(want); }

std::vector<Device> list(const SourceOptions& options) { return sample({.processes = false}, options).devices; }

}  // namespace yoke::device
