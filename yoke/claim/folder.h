// yoke/claim/folder.h -- the folder of the locks, in which everybody may write, and files in it that can be trusted.
//
// Anybody may put anything into the folder. So a file is used only if it is a regular file, not reached by a symbolic
// link, and without a second name. Its owner is the kernel's word, and neither its name nor its text is.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/file.h"
#include "yoke/claim/config.h"
#include "yoke/claim/kernel_locks.h"

namespace yoke::claim {

class LockFolder {
 public:
  using Leases = std::optional<std::vector<KernelLock>>;

  /// Who may own the folder. The owner of a folder can remove the files of others.
  enum class Owner { kRoot, kRootOrSelf };

  /// Errors  kNotFound: it does not exist; kFailedPrecondition: it is not a folder of root's that all users may write
  /// to
  ///         and in which nobody can remove the files of others (mode 1777).
  explicit LockFolder(std::filesystem::path path, Owner owner = Owner::kRoot);

  const std::filesystem::path& path() const { return path_; }
  bool is_of_root() const { return is_of_root_; }  ///< If not, it is this user's own.
  /// Which claims are in another folder in which users may look for them, in a sentence; empty: none.
  const std::string& elsewhere() const { return elsewhere_; }
  void set_elsewhere(std::string text) { elsewhere_ = std::move(text); }
  std::filesystem::path path_of(std::string_view name) const { return path_ / name; }

  /// Opens a lock that all users share, for reading, which is enough for flock(). Creates it if it does not exist.
  /// Errors  kFailedPrecondition: something else has its name; the message says what to remove. As errno says.
  UniqueFd open_shared(const std::string& name) const;

  /// Why open_shared() would refuse a file, in a sentence that names it and its owner; nullopt: nothing is in the way.
  /// With `leases`, it also names the process of a file lease. They are read if needed, which takes milliseconds.
  std::optional<std::string> obstacle(const std::string& name, Leases* leases = nullptr) const;

  /// The obstacles to all locks that users share: those that order requests, and those of devices.
  std::vector<std::string> obstacles() const;

  /// Opens an existing file for reading. nullopt: it does not exist, or cannot be trusted.
  /// `found` gets what the kernel says about it.
  std::optional<UniqueFd> open_existing(const std::string& name, int flags = 0, struct stat* found = nullptr) const;

  /// Creates a file of this user, readable by all. Errors  as errno says; kUnavailable also if it exists.
  UniqueFd create(const std::string& name) const;

  /// Removes a file of this user; root's processes remove those of others, too. Otherwise without effect.
  void remove(const std::string& name) const;

  /// Whether `fd` is still the file of that name, and has no second name.
  bool is_current(int fd, const std::string& name) const;

  /// Returns which users have the most bytes in the folder, for the message that it is full: "bob has 3.9 MiB in 12
  /// files there, ...".
  std::string fullest() const;

  /// The names that begin with `beginning`, sorted.
  std::vector<std::string> names(std::string_view beginning) const;

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  bool is_of_root_ = true;
  std::string elsewhere_;
};

/// "ada", or "uid 1007" for a user without a name.
std::string user_text(int64_t uid);

/// All names of claims' files begin with this prefix, because /run/lock and /tmp contain files of other programs.
inline constexpr std::string_view kFilePrefix = "yoke-";

/// The folder that all users of this machine agree on: that of the configuration, or else /run/yoke, or else /run/lock,
/// or else /tmp. YOKE_CLAIM_DIR names a different one, for tests; where there is a site's file, only root may do that.
/// The limits of a folder that is shared are those of root, so it is not used with a file of the user's own.
/// kAll also looks for claims in the others of these folders: those of root and of this user are an error, and those of
/// other users, who may put there what they like, are in elsewhere(). With kTell all are there.
///
/// Errors  kNotFound: there is none; those of LockFolder, since users who fell back would not agree with those who did
///         not; kFailedPrecondition: root or this user has claimed devices in a second one of these folders;
///         kPermissionDenied: a variable would lift limits.
enum class FolderCheck { kAll, kTell, kOwn };
LockFolder find_lock_folder(const SiteConfig& config, const Environment& environment,
                            FolderCheck check = FolderCheck::kAll);

}  // namespace yoke::claim
