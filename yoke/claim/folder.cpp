#include "yoke/claim/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/text.h"
#include "yoke/claim/detail/survey.h"
#include "yoke/contract/variables.h"
#include "yoke/device/process/info.h"

namespace yoke::claim {
namespace {

/// Without O_NONBLOCK a FIFO would keep this process waiting, and so would a file lease.
constexpr int kOpenFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;

/// What keeps a file from being trusted; empty: nothing.
std::string distrust(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return "it is not a regular file";
  if (status.st_nlink > 1) return "it has a second name (a hard link)";
  return "";
}

/// Whoever owns a file can keep others from opening it (fcntl, F_SETLEASE), and so can root.
constexpr const char* kLeased = "a file lease keeps others from opening it";

/// Which process has the lease, if `leases` tell.
std::string lease_text(const std::vector<KernelLock>& leases, const struct stat& status) {
  for (const auto& lease : leases) {
    if (lease.inode != status.st_ino || lease.device != device_by_stat(status)) continue;
    // A number that a process of a different user has now is one that was used again.
    const auto facts = process_facts(lease.pid);
    const bool is_possible = facts && (facts->effective_uid == int64_t{status.st_uid} || facts->effective_uid == 0);
    if (is_possible) return fmt::format("{} (of process {})", kLeased, lease.pid);
  }
  return kLeased;
}

Error in_the_way(const std::filesystem::path& path, const std::string& why, const struct stat* status) {
  return {ErrorCode::kFailedPrecondition, "{} is in the way: {}{}; its owner or root must remove it", path.string(),
          why, status == nullptr ? "" : fmt::format(", and belongs to {}", user_text(status->st_uid))};
}

/// Creates a file that all may read, whatever the umask is. A file that was created with fewer rights and then changed
/// would stay unusable for others if this process were killed in between.
int create_readable(int folder, const char* name, int flags) {
  const auto before = umask(022);
  const int fd = openat(folder, name, flags | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  const int error = errno;
  umask(before);
  errno = error;
  return fd;
}

struct HeldClaim {
  std::string name;
  uid_t uid = 0;  ///< Of the file's owner.
};

/// A claim that is held there; one of root or of this user, if there is one.
std::optional<HeldClaim> find_held_claim(const LockFolder& folder) {
  std::optional<HeldClaim> result;
  for (const auto& name : folder.names(kNotePrefix)) {
    struct stat status {};
    const auto fd = folder.open_existing(name, 0, &status);
    if (!fd || uid_in(name, kNotePrefix) != int64_t{status.st_uid}) continue;  // a name that pretends
    if (flock(fd->value(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) continue;
    const bool is_trusted = status.st_uid == 0 || status.st_uid == geteuid();
    if (!result || is_trusted) result = HeldClaim{name, status.st_uid};
    if (is_trusted) break;
  }
  return result;
}

/// Throws, or notes what to say about a claim in another folder.
void judge(const HeldClaim& claim, const std::string& path, LockFolder& folder, FolderCheck check) {
  const auto file = printable((std::filesystem::path(path) / claim.name).string());
  const bool is_trusted = claim.uid == 0 || claim.uid == geteuid();
  if (is_trusted && check == FolderCheck::kAll) {
    throw Error(ErrorCode::kFailedPrecondition,
                "devices are claimed in {} (by {}, {}) and would now be claimed in {}, so two users could get the same "
                "one; let the claims in {} end, or set lock_directory in /etc/yoke/config.toml to it",
                path, user_text(claim.uid), file, folder.path().string(), path);
  }
  folder.set_elsewhere(
      fmt::format("{} has a claim in {}, but devices are claimed in {}, where it does not count: see with `yoke ps` "
                  "what is used; root can remove {}",
                  user_text(claim.uid), path, folder.path().string(), file));
}

constexpr std::array kAgreed = {"/run/yoke", "/run/lock", "/tmp"};

LockFolder find_agreed_folder(const SiteConfig& config, FolderCheck check) {
  std::optional<LockFolder> found;
  if (config.lock_directory) found.emplace(*config.lock_directory);
  for (const char* path : kAgreed) {
    if (config.lock_directory == path) continue;
    struct stat status {};
    const bool is_there = lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
    if (!is_there) continue;
    constexpr mode_t kWanted = 01777;
    const bool is_right = status.st_uid == 0 && (status.st_mode & 07777) == kWanted;
    // /run/yoke exists for this purpose alone, so if it is wrong, that is an error and not a reason to go on.
    if (!found && (is_right || std::string_view(path) == kAgreed[0])) {
      found.emplace(path);
      continue;
    }
    if (!found || !is_right || check == FolderCheck::kOwn) continue;
    if (const auto claim = find_held_claim(LockFolder(path))) judge(*claim, path, *found, check);
  }
  if (!found) {
    throw Error(ErrorCode::kNotFound,
                "there is no folder for locks that all users may write to; as root, `mkdir -m 1777 /run/yoke`");
  }
  return std::move(*found);
}

LockFolder find_chosen_folder(const std::string& chosen, const SiteConfig& config, FolderCheck check) {
  LockFolder folder(chosen, LockFolder::Owner::kRootOrSelf);
  if (!config.is_decided) return folder;
  const auto agreed = find_agreed_folder(config, check);
  std::error_code error;
  if (std::filesystem::equivalent(folder.path(), agreed.path(), error)) return folder;
  throw Error(
      ErrorCode::kPermissionDenied,
      "YOKE_CLAIM_DIR names {}, but on this machine /etc/yoke/config.toml has the limits, and claims are in {}; "
      "unset YOKE_CLAIM_DIR",
      chosen, agreed.path().string());
}

}  // namespace

LockFolder::LockFolder(std::filesystem::path path, Owner owner) : path_(std::move(path)) {
  fd_ = UniqueFd(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd_) throw system_error(errno, "opening the folder of locks " + path_.string());
  struct stat status {};
  if (fstat(fd_.value(), &status) != 0) throw system_error(errno, path_.string());
  is_of_root_ = status.st_uid == 0;
  const bool is_owned = is_of_root_ || (owner == Owner::kRootOrSelf && status.st_uid == geteuid());
  constexpr mode_t kWanted = 01777;
  if (is_owned && (status.st_mode & 07777) == kWanted) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "the folder of locks {} belongs to {} and has mode {:04o}, so users could remove each other's locks, or "
              "not make their own; as root, `chown root {}` and `chmod 1777 {}`",
              path_.string(), user_text(status.st_uid), status.st_mode & 07777, path_.string(), path_.string());
}

std::optional<UniqueFd> LockFolder::open_existing(const std::string& name, int flags, struct stat* found) const {
  UniqueFd fd(openat(fd_.value(), name.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  struct stat status {};
  if (!fd || fstat(fd.value(), &status) != 0 || !distrust(status).empty()) return std::nullopt;
  if (found != nullptr) *found = status;
  return fd;
}

std::optional<std::string> LockFolder::obstacle(const std::string& name, Leases* leases) const {
  struct stat status {};
  if (fstatat(fd_.value(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  auto why = S_ISLNK(status.st_mode) ? "it is a symbolic link" : distrust(status);
  if (why.empty() && !UniqueFd(openat(fd_.value(), name.c_str(), kOpenFlags))) {
    if (errno == EACCES) why = "it may not be read";
    if (errno == EWOULDBLOCK) why = kLeased;
  }
  if (why == kLeased && leases != nullptr) {
    if (!*leases) *leases = read_locks("LEASE");
    why = lease_text(**leases, status);
  }
  return why.empty() ? std::nullopt : std::optional<std::string>(in_the_way(path_of(name), why, &status).what());
}

std::vector<std::string> LockFolder::obstacles() const {
  std::vector<std::string> result;
  Leases leases;
  for (const auto& name : names(kFilePrefix)) {
    if (name != kAllocationName && name != kSecondAllocationName && !name.starts_with(kDevicePrefix)) continue;
    if (auto found = obstacle(name, &leases)) result.push_back(std::move(*found));
  }
  return result;
}

UniqueFd LockFolder::open_shared(const std::string& name) const {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (;;) {
    // Without O_CREAT first: with fs.protected_regular the kernel refuses O_CREAT on a file of somebody else.
    UniqueFd fd(openat(fd_.value(), name.c_str(), kOpenFlags));
    int error = errno;
    struct stat status {};
    if (fd) {
      if (fstat(fd.value(), &status) != 0) throw system_error(errno, path_of(name).string());
      if (const auto why = distrust(status); !why.empty()) throw in_the_way(path_of(name), why, &status);
      return fd;
    }
    if (error == ELOOP) {
      const bool is_known = fstatat(fd_.value(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
      throw in_the_way(path_of(name), "it is a symbolic link", is_known ? &status : nullptr);
    }
    if (error == ENOENT) {
      fd = UniqueFd(create_readable(fd_.value(), name.c_str(), O_RDONLY));
      if (fd) return fd;
      error = errno;
    }
    const bool is_there = fstatat(fd_.value(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (is_there && (error == EACCES || error == EISDIR || error == ENXIO || error == EWOULDBLOCK)) {
      const auto why = error == EACCES        ? "it may not be read"
                       : error == EWOULDBLOCK ? kLeased
                                              : "it is not a regular file";
      throw in_the_way(path_of(name), why, &status);
    }
    // EEXIST: somebody else created it first. ENOENT: it was removed in between.
    if (error == ENOSPC || error == EDQUOT) {
      throw Error(ErrorCode::kUnavailable, "making the lock {}: {} is full; {}", path_of(name).string(), path_.string(),
                  fullest());
    }
    if ((error != EEXIST && error != ENOENT) || std::chrono::steady_clock::now() > until) {
      throw system_error(error, "making the lock " + path_of(name).string());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

UniqueFd LockFolder::create(const std::string& name) const {
  UniqueFd fd(create_readable(fd_.value(), name.c_str(), O_RDWR));
  if (!fd && (errno == ENOSPC || errno == EDQUOT)) {
    throw Error(ErrorCode::kUnavailable, "making {}: {} is full; {}", path_of(name).string(), path_.string(),
                fullest());
  }
  if (!fd) throw system_error(errno, "making " + path_of(name).string());
  return fd;
}

void LockFolder::remove(const std::string& name) const {
  struct stat status {};
  if (fstatat(fd_.value(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (status.st_uid == geteuid() || geteuid() == 0) unlinkat(fd_.value(), name.c_str(), 0);
}

bool LockFolder::is_current(int fd, const std::string& name) const {
  struct stat mine {
  }, named{};
  if (fstat(fd, &mine) != 0 || fstatat(fd_.value(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0) return false;
  return mine.st_dev == named.st_dev && mine.st_ino == named.st_ino && distrust(named).empty();
}

std::string LockFolder::fullest() const {
  struct Amount {
    int64_t bytes = 0, num_files = 0;
  };
  std::map<uid_t, Amount> by_user;
  std::error_code error;
  constexpr int kMost = 100'000;
  int num_seen = 0;
  using Walk = std::filesystem::recursive_directory_iterator;
  for (Walk at(path_, std::filesystem::directory_options::skip_permission_denied, error), end;
       !error && at != end && num_seen < kMost; at.increment(error), ++num_seen) {
    struct stat status {};
    if (lstat(at->path().c_str(), &status) != 0) continue;
    auto& amount = by_user[status.st_uid];
    amount.bytes += int64_t{status.st_blocks} * 512;
    ++amount.num_files;
  }
  if (by_user.empty()) return "make room";
  const auto most = std::ranges::max_element(by_user, [](const auto& a, const auto& b) {
    return std::pair(a.second.bytes, a.second.num_files) < std::pair(b.second.bytes, b.second.num_files);
  });
  return fmt::format("{} has {} in {} {} there, which that user or root can remove",
                     printable(device::user_name(int64_t{most->first})), format_bytes(most->second.bytes),
                     most->second.num_files, most->second.num_files == 1 ? "file" : "files");
}

std::vector<std::string> LockFolder::names(std::string_view beginning) const {
  const int copy = openat(fd_.value(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(copy < 0 ? nullptr : fdopendir(copy), closedir);
  if (!folder) throw system_error(errno, "listing " + path_.string());
  std::vector<std::string> result;
  while (const auto* const entry = readdir(folder.get())) {
    if (std::string_view(entry->d_name).starts_with(beginning)) result.emplace_back(entry->d_name);
  }
  std::ranges::sort(result);
  return result;
}

std::string user_text(int64_t uid) {
  const auto name = printable(device::user_name(uid));
  return name == std::to_string(uid) ? "uid " + name : name;
}

LockFolder find_lock_folder(const SiteConfig& config, const Environment& environment, FolderCheck check) {
  const auto chosen = environment.find(variable::kClaimDir);
  auto folder = chosen ? find_chosen_folder(*chosen, config, check) : find_agreed_folder(config, check);
  if (!config.is_of_user || !folder.is_of_root()) return folder;
  throw Error(
      ErrorCode::kPermissionDenied,
      "YOKE_SITE_CONFIG names a file of your own, but all users claim in {}, where only root decides on limits; "
      "unset YOKE_SITE_CONFIG",
      folder.path().string());
}

}  // namespace yoke::claim
