#include "yoke/program/private_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::program {
namespace {

/// A folder that is younger may belong to a process that has not locked it yet.
constexpr std::chrono::seconds kTimeToLock{10};

/// Locks the folder if it belongs to this user and no process holds its lock.
UniqueFd lock_folder(const std::filesystem::path& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info = {};
  if (!fd || fstat(fd.value(), &info) != 0 || info.st_uid != geteuid()) return {};
  if (flock(fd.value(), LOCK_EX | LOCK_NB) != 0) return {};
  return fd;
}

bool is_old(const std::filesystem::path& path) {
  std::error_code error;
  const auto changed = std::filesystem::last_write_time(path, error);
  return !error && std::filesystem::file_time_type::clock::now() - changed > kTimeToLock;
}

/// Removes the folders of processes that were killed before they could do so.
void remove_abandoned(const std::filesystem::path& parent, const std::string& prefix) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(parent, ignored)) {
    if (!entry.path().filename().native().starts_with(prefix) || !is_old(entry.path())) continue;
    if (const auto lock = lock_folder(entry.path())) std::filesystem::remove_all(entry.path(), ignored);
  }
}

}  // namespace

PrivateFolder::PrivateFolder(const std::filesystem::path& parent, std::string_view purpose) {
  const auto prefix = fmt::format(".yoke-{}-", purpose);
  remove_abandoned(parent, prefix);
  auto name = (parent / (prefix + "XXXXXX")).native();
  if (mkdtemp(name.data()) == nullptr) {
    throw system_error(errno, fmt::format("making a folder for {} in {}", purpose, printable(parent.native())));
  }
  path_ = name;
  lock_ = lock_folder(path_);
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace yoke::program
