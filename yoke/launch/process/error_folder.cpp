#include "yoke/launch/process/error_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <string_view>
#include <system_error>

namespace yoke::launch {
namespace {

constexpr time_t kYoungSeconds = 60;

UniqueFd open_error_folder(const std::filesystem::path& folder) {
  return UniqueFd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool is_abandoned(const UniqueFd& folder) {
  struct stat status {};
  if (!folder || fstat(folder.value(), &status) != 0 || status.st_uid != geteuid()) return false;
  return time(nullptr) - status.st_mtime > kYoungSeconds && flock(folder.value(), LOCK_EX | LOCK_NB) == 0;
}

}  // namespace

UniqueFd make_error_folder(const std::filesystem::path& folder) {
  if (mkdir(folder.c_str(), 0700) != 0) return UniqueFd();
  auto lock = open_error_folder(folder);
  if (lock) flock(lock.value(), LOCK_EX | LOCK_NB);
  return lock;
}

void remove_abandoned_error_folders(const std::filesystem::path& parent) {
  constexpr std::string_view kPrefix = "yoke-run-";
  constexpr size_t kDigits = 16;  // error_folder_name()
  std::error_code error;
  for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error)) {
    const auto name = entry->path().filename().native();
    if (!name.starts_with(kPrefix) || name.size() != kPrefix.size() + kDigits ||
        name.find_first_not_of("0123456789abcdef", kPrefix.size()) != name.npos) {
      continue;
    }
    std::error_code ignored;
    if (is_abandoned(open_error_folder(entry->path()))) std::filesystem::remove_all(entry->path(), ignored);
  }
}

}  // namespace yoke::launch
