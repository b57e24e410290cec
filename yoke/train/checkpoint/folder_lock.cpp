#include "yoke/train/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/base/host.h"
#include "yoke/train/checkpoint/step_folder.h"

namespace yoke::train {

namespace fs = std::filesystem;

FolderLock::FolderLock(const fs::path& folder) {
  make_folder(folder);
  const auto path = folder / ".yoke-lock";
  fd_ = UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd_) throw system_error(errno, "opening " + path.string());
  if (flock(fd_.value(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) throw system_error(errno, "locking " + path.string());
    auto holder = read_file(path);
    throw Error(ErrorCode::kUnavailable,
                "the folder {} is in use by another run{}{}; wait for it, or choose another folder", folder.string(),
                holder.empty() ? "" : ": ", holder);
  }
  const auto holder = fmt::format("pid {} on {}", getpid(), host_name());
  // The text is only for the error message above. On a full disk the file stays empty, which does no harm.
  if (ftruncate(fd_.value(), 0) == 0) [[maybe_unused]]
    const auto count = write(fd_.value(), holder.data(), holder.size());
}

}  // namespace yoke::train
