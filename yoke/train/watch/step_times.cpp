#include "yoke/train/watch/detail/step_times.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>

#include "yoke/base/error.h"
#include "yoke/contract/step_times.h"
#include "yoke/dist/plug.h"
#include "yoke/train/warn.h"

namespace yoke::train::detail {
namespace {

constexpr int64_t kFirstSteps = 20;  // each of these steps has a line
constexpr int64_t kPeriodNs = 100'000'000;

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// Returns a value such as "VmHWM:   1024 kB" from the text of /proc/self/status, in bytes; 0 if it is missing.
int64_t status_bytes(const char* status, const char* name) {
  const char* const line = std::strstr(status, name);
  return line == nullptr ? 0 : std::atoll(line + std::strlen(name)) * 1024;
}

/// Does not use getrusage(), whose peak includes the program that this process ran before exec.
void add_host_memory(StepMemory& memory) {
  char status[4096];
  const UniqueFd fd(open("/proc/self/status", O_RDONLY | O_CLOEXEC));
  const ssize_t count = fd ? read(fd.value(), status, sizeof status - 1) : -1;
  if (count <= 0) return;
  status[count] = '\0';
  memory.resident_peak_bytes = status_bytes(status, "VmHWM:");
  memory.address_space_peak_bytes = status_bytes(status, "VmPeak:");
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    memory.address_space_limit_bytes = static_cast<int64_t>(limit.rlim_cur);
  }
}

/// The allocator of the device that this process trains on; null if nothing is allocated on the device.
c10::DeviceAllocator* device_allocator() {
  const auto* const plug = dist::loaded_plug();
  if (plug == nullptr) return nullptr;
  auto* const allocator = c10::getDeviceAllocator(plug->device_type);
  return allocator != nullptr && allocator->initialized() ? allocator : nullptr;
}

/// Waits for the device, because a step ends later on the device than on the host.
void synchronize() {
  if (device_allocator() == nullptr) return;
  const c10::impl::VirtualGuardImpl guard(dist::loaded_plug()->device_type);
  guard.synchronizeDevice(guard.getDevice().index());
}

void add_device_memory(StepMemory& memory) {
  auto* const allocator = device_allocator();
  if (allocator == nullptr) return;
  const auto device = c10::impl::VirtualGuardImpl(dist::loaded_plug()->device_type).getDevice().index();
  const auto stats = allocator->getDeviceStats(device);
  const auto [free, total] = allocator->getMemoryInfo(device);
  memory.device_peak_bytes = stats.allocated_bytes[0].peak;
  memory.device_limit_bytes = static_cast<int64_t>(free) + stats.reserved_bytes[0].current;
}

}  // namespace

StepTimes::StepTimes(std::string folder, const RankEnv& rank)
    : folder_(std::move(folder)), rank_(rank), pid_(getpid()) {}

StepTimes::~StepTimes() {
  // Skipped in a forked child. Does not query the device, because its libraries may have been unloaded.
  if (getpid() != pid_ || last_step_ == last_written_ || !fd_ || is_broken_) return;
  const auto line = to_line(StepTime{last_step_, last_ns_});
  [[maybe_unused]] const auto count = write(fd_.value(), line.data(), line.size());
}

void StepTimes::on_step(int64_t step) {
  last_step_ = step;
  last_ns_ = now_ns();
  if ((last_ns_ < next_line_ns_ && step >= kFirstSteps) || is_broken_) return;
  try {
    synchronize();
    last_ns_ = now_ns();
    if (getpid() != pid_) {
      pid_ = getpid();
      fd_.reset();
    }
    if (!fd_) open_file();
    write_line(step, last_ns_);
    last_written_ = step;
  } catch (const std::exception& error) {
    is_broken_ = true;
    warn_on_stderr(fmt::format("step times are not written: {}", error.what()));
  }
  next_line_ns_ = last_ns_ + kPeriodNs;
}

void StepTimes::open_file() {
  const auto path = fmt::format("{}/rank-{}.{}.jsonl", folder_, rank_.rank, pid_);
  fd_ = UniqueFd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd_) throw system_error(errno, path);
  const auto line = to_line(StepTimesRank{rank_.rank, rank_.world_size, rank_.local_world_size, pid_});
  write_all(fd_.value(), line, path);
}

void StepTimes::write_line(int64_t step, int64_t time_ns) {
  StepTime time{step, time_ns};
  add_host_memory(time.memory);
  add_device_memory(time.memory);
  const auto line = to_line(time);
  write_all(fd_.value(), line, folder_);
}

}  // namespace yoke::train::detail
