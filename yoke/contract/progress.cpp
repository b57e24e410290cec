#include "yoke/contract/progress.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "yoke/base/file.h"
#include "yoke/contract/variables.h"

namespace yoke {
namespace {

/// Returns the number in the launcher's file, shared with whoever reads it; null if there is none.
int64_t* map_progress() {
  const char* path = std::getenv(variable::kProgress);
  if (path == nullptr || *path == '\0') return nullptr;
  const UniqueFd fd(open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  constexpr int64_t kNone = -1;
  // Writing takes the space at once: on a full file system, the first access to the memory would be a SIGBUS.
  if (!fd || write(fd.value(), &kNone, sizeof kNone) != sizeof kNone) return nullptr;
  void* const memory = mmap(nullptr, sizeof kNone, PROT_READ | PROT_WRITE, MAP_SHARED, fd.value(), 0);
  return memory == MAP_FAILED ? nullptr : static_cast<int64_t*>(memory);
}

}  // namespace

void report_progress(int64_t num_steps) noexcept {
  static int64_t* const progress = map_progress();
  if (progress != nullptr) std::atomic_ref(*progress).store(num_steps, std::memory_order_relaxed);
}

std::optional<int64_t> read_progress(const std::filesystem::path& path) noexcept {
  // A rank may put anything in place of its file: O_NONBLOCK does not wait for the writer of a FIFO.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
  int64_t num_steps = -1;
  if (!fd || pread(fd.value(), &num_steps, sizeof num_steps, 0) != sizeof num_steps || num_steps < 0)
    return std::nullopt;
  return num_steps;
}

}  // namespace yoke
