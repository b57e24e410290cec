#include "yoke/device/gpu_count.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/contract/cuda_driver.h"

namespace yoke::device {
namespace {

/// The child's answer. One write() sends it atomically, because it is smaller than PIPE_BUF.
struct Answer {
  int64_t num_gpus = 0;
  char reason[504] = {};
};

GpuCount count_amd() {
  // The library is never closed, because the runtime has started threads.
  void* library = dlopen("libamdhip64.so", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {0, "no AMD runtime (libamdhip64.so does not load)"};
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(library, "hipGetDeviceCount"));
  if (count == nullptr) return {0, "libamdhip64.so lacks hipGetDeviceCount"};
  int num_devices = 0;
  const int status = count(&num_devices);
  if (status == 100 || (status == 0 && num_devices == 0)) return {0, "the AMD runtime shows no device to this process"};
  if (status != 0) return {0, fmt::format("hipGetDeviceCount failed with HIP error {}", status)};
  return {num_devices, ""};
}

GpuCount count_in_this_process() {
  const auto nvidia = probe_cuda_driver();
  if (nvidia.num_devices > 0) return {nvidia.num_devices, ""};
  auto amd = count_amd();
  if (amd.num_gpus == 0) amd.reason = nvidia.reason + "; " + amd.reason;
  return amd;
}

[[noreturn]] void answer_and_exit(int fd) {
  // Drivers may print text that does not belong in the user's output.
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int stream : {0, 1, 2}) dup2(null, stream);
  Answer answer;
  try {
    const auto count = count_in_this_process();
    answer.num_gpus = count.num_gpus;
    std::copy_n(count.reason.data(), std::min(count.reason.size(), sizeof answer.reason - 1), answer.reason);
  } catch (...) {
    std::strcpy(answer.reason, "asking the driver failed");
  }
  const ssize_t written = write(fd, &answer, sizeof answer);
  _exit(written == sizeof answer ? 0 : 1);  // not exit(), which would run the parent's atexit handlers
}

/// Reaps a child that was killed. The child ends at once, or never if it hangs in a driver.
void reap(pid_t child, std::chrono::milliseconds patience) {
  while (waitpid(child, nullptr, WNOHANG) == 0 && patience.count() > 0) {
    poll(nullptr, 0, 1);
    patience -= std::chrono::milliseconds(1);
  }
}

}  // namespace

GpuCount count_gpus(std::chrono::milliseconds deadline) {
  auto pipe = make_pipe();
  const pid_t child = fork();  // not spawn(), because the child runs code of this program to ask the driver
  if (child < 0) throw system_error(errno, "starting a process that asks the GPU driver");
  if (child == 0) answer_and_exit(pipe.write_end.value());
  pipe.write_end.reset();

  pollfd poll_fd{pipe.read_end.value(), POLLIN, 0};
  const auto until = std::chrono::steady_clock::now() + deadline;
  int ready = 0;
  do {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    ready = poll(&poll_fd, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
  } while (ready < 0 && errno == EINTR);

  Answer answer;
  const bool answered = ready > 0 && read(pipe.read_end.value(), &answer, sizeof answer) == sizeof answer;
  if (answered) {
    waitpid(child, nullptr, 0);
    return {answer.num_gpus, answer.reason};
  }
  kill(child, SIGKILL);
  reap(child, std::chrono::milliseconds(100));
  if (ready > 0) return {0, "the GPU driver ended the process that asked it"};
  return {0, fmt::format("the GPU driver did not answer within {} s", static_cast<double>(deadline.count()) / 1000)};
}

}  // namespace yoke::device
