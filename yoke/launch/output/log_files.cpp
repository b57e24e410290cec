#include "yoke/launch/output/log_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "yoke/base/error.h"

namespace yoke::launch {
namespace {

/// Returns the first usable one of TMPDIR, /tmp and /var/tmp. The path is absolute, because a rank may change its
/// working directory. Errors  kUnavailable if none is usable.
std::filesystem::path temporary_folder() {
  std::error_code error;
  const auto wanted = std::filesystem::absolute(std::filesystem::temp_directory_path(error), error);
  for (const auto& folder : {wanted, std::filesystem::path("/tmp"), std::filesystem::path("/var/tmp")}) {
    if (folder.is_absolute() && has_room_for_files(folder)) return folder.lexically_normal();
  }
  throw Error(ErrorCode::kUnavailable, "cannot write to TMPDIR, /tmp or /var/tmp; set TMPDIR, or give --log-dir");
}

void make_folders(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw system_error(error.value(), fmt::format("making the log folder {}", folder.string()));
}

std::string make_unique_folder(const std::filesystem::path& beginning) {
  auto path = beginning.string() + "XXXXXX";
  if (mkdtemp(path.data()) == nullptr) throw system_error(errno, fmt::format("making the folder {}", path));
  return path;
}

}  // namespace

/// The folder may belong to a different user, be read-only or be full, so the function tries it.
bool has_room_for_files(const std::filesystem::path& folder) {
  constexpr size_t kBytes = 1 << 14;  // as large as some error files
  UniqueFd file(open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC,
                     0600));                                // without a name, so that nothing stays after a kill
  if (!file && (errno == EOPNOTSUPP || errno == EISDIR)) {  // this file system has no O_TMPFILE
    auto path = (folder / "yoke-XXXXXX").string();
    file = UniqueFd(mkostemp(path.data(), O_CLOEXEC));
    if (file) unlink(path.c_str());
  }
  if (!file) return false;
  rlimit limit{};  // the error files of ranks must not exceed this limit either
  const auto size = getrlimit(RLIMIT_FSIZE, &limit) == 0 ? std::min<rlim_t>(kBytes, limit.rlim_cur) : kBytes;
  const std::string bytes(size, '\0');
  return write(file.value(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}

std::string make_run_folder(const LogOptions& logs, const std::string& run_id) {
  const bool has_files = !logs.redirects.is_empty() || !logs.tee.is_empty();
  if (logs.folder == "/dev/null" || (logs.folder.empty() && !has_files)) return "";
  std::filesystem::path base = logs.folder;
  if (base.empty()) {
    base = make_unique_folder(temporary_folder() / "yoke_");
  } else {
    make_folders(base);
  }
  auto name = run_id;
  std::ranges::replace(name, '/', '_');
  return make_unique_folder(std::filesystem::absolute(base).lexically_normal() / (name + "_"));
}

std::string make_attempt_folder(const std::string& run_folder, int64_t attempt, int64_t num_ranks) {
  auto folder = fmt::format("{}/attempt_{}", run_folder, attempt);
  for (int64_t rank = 0; rank < num_ranks; ++rank) make_folders(fmt::format("{}/{}", folder, rank));
  return folder;
}

std::string error_folder_name() {
  std::random_device random;
  try {
    return temporary_folder() / fmt::format("yoke-run-{:08x}{:08x}", random(), random());
  } catch (const Error&) {
    return "";
  }
}

UniqueFd open_log(const std::string& path, LogStart start) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;
  UniqueFd fd(open(path.c_str(), kFlags | (start == LogStart::kEmpty ? O_TRUNC : 0), 0644));
  if (!fd) throw system_error(errno, fmt::format("opening the log {}", path));
  struct stat status {};
  if (fstat(fd.value(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kFailedPrecondition, "opening the log {}: not a regular file", path);
  }
  fcntl(fd.value(), F_SETFL, O_APPEND);  // clears O_NONBLOCK, because a rank may inherit this descriptor
  return fd;
}

}  // namespace yoke::launch
