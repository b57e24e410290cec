#include "yoke/contract/progress.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "yoke/base/file.h"
#include "yoke/contract/variables.h"

namespace yoke {
namespace {

constexpr off_t kSize = sizeof(int64_t);

/// Maps the file `path`, which it makes if there is none. Returns null, with errno, if that cannot be done. The file is
/// never cut, because other processes and threads of the rank may have mapped it. A file with other content than a
/// number stays as it is.
int64_t* map_number(const char* path) {
  const UniqueFd fd(open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  struct stat info = {};
  if (!fd || fstat(fd.value(), &info) != 0) return nullptr;
  if (!S_ISREG(info.st_mode) || (info.st_size != 0 && info.st_size != kSize)) {
    errno = EINVAL;
    return nullptr;
  }
  // Takes the space at once: on a full file system, the first access to the memory would be a SIGBUS.
  if (const int error = posix_fallocate(fd.value(), 0, kSize); error != 0) {
    errno = error;
    return nullptr;
  }
  void* const memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd.value(), 0);
  return memory == MAP_FAILED ? nullptr : static_cast<int64_t*>(memory);
}

/// Returns the number in the launcher's file, shared with whoever reads it; null if there is none.
int64_t* map_progress() noexcept {
  const char* path = std::getenv(variable::kProgress);
  if (path == nullptr || *path == '\0') return nullptr;
  int64_t* const number = map_number(path);
  if (number == nullptr) {
    std::fprintf(stderr, "yoke: the progress of this rank cannot be recorded, so a failure may end the job: %s: %s\n",
                 path, std::strerror(errno));
  }
  return number;
}

}  // namespace

void report_progress(int64_t num_steps) noexcept {
  static std::atomic<int64_t*> progress = nullptr;
  static std::atomic<pid_t> tried = 0;  // a process that was forked before it was a rank tries again
  int64_t* number = progress.load(std::memory_order_relaxed);
  if (number == nullptr) {
    const pid_t self = getpid();
    if (tried.exchange(self) == self) return;
    progress = number = map_progress();
  }
  if (number == nullptr) return;
  std::atomic_ref(*number).store(std::clamp<int64_t>(num_steps, -1, INT64_MAX - 1) + 1, std::memory_order_relaxed);
}

std::optional<int64_t> read_progress(const std::filesystem::path& path) noexcept {
  // A rank may put anything in place of its file: O_NONBLOCK does not wait for the writer of a FIFO.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
  int64_t number = 0;
  if (!fd || pread(fd.value(), &number, kSize, 0) != kSize || number <= 0) return std::nullopt;
  return number - 1;
}

std::optional<int64_t> read_kept_step(const std::string& path) noexcept {
  return std::max(read_progress(path + ".0"), read_progress(path + ".1"));
}

void forget_kept_steps(const std::string& path) noexcept {
  for (const char* const end : {".0", ".1"}) {
    const UniqueFd fd(open((path + end).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
    struct stat info = {};
    if (!fd || fstat(fd.value(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < kSize) continue;
    const int64_t none = 0;
    [[maybe_unused]] const auto written = pwrite(fd.value(), &none, kSize, 0);
  }
}

}  // namespace yoke
