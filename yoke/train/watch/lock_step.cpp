#include "yoke/train/watch/detail/lock_step.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/contract/variables.h"
#include "yoke/train/warn.h"

namespace yoke::train::detail {
namespace {

UniqueFd open_fifo(const std::filesystem::path& path) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));  // O_RDWR does not wait for the other end
  if (!fd) throw system_error(errno, path.string());
  return fd;
}

}  // namespace

LockStep::LockStep(const std::filesystem::path& own) : pid_(getpid()), own_(open_fifo(own)) {
  for (const auto& entry : std::filesystem::directory_iterator(own.parent_path())) {
    if (entry.path() != own) others_.push_back(open_fifo(entry.path()));
  }
}

void LockStep::on_step(int64_t /*step*/) {
  if (getpid() != pid_) return;
  const auto count = [](ssize_t result) -> int64_t {
    if (result < 0 && errno != EINTR) throw system_error(errno, variable::kLockStep);
    return result < 0 ? 0 : result;
  };
  try {
    for (const auto& other : others_) {
      while (count(write(other.value(), "s", 1)) == 0) {
      }
    }
    num_missing_ += std::ssize(others_);
    char bytes[4096];
    while (num_missing_ > 0) num_missing_ -= count(read(own_.value(), bytes, sizeof bytes));
  } catch (const Error& error) {
    others_.clear();
    num_missing_ = 0;
    warn_on_stderr(fmt::format("the copies of this program do not wait for each other: {}", error.what()));
  }
}

}  // namespace yoke::train::detail
