#include "yoke/cli/cluster/slurm_check_fix.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"
#include "yoke/base/utf8.h"
#include "yoke/cli/frame/input.h"

namespace yoke::cli {
namespace {

bool is_unchanged(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

}  // namespace

OriginalFile read_to_fix(const std::string& file, std::string_view kind) {
  if (std::filesystem::is_directory(file)) {
    throw Error(ErrorCode::kInvalidArgument, "{} is a folder; give {}", printable(file), kind);
  }
  OriginalFile original;
  const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd || fstat(fd.value(), &original.status) != 0) throw system_error(errno, "reading " + printable(file));
  original.text = read_input(fd.value(), printable(file), kind);
  if (S_ISREG(original.status.st_mode)) original.path = std::filesystem::canonical(file);
  return original;
}

std::string why_not_fix(const OriginalFile& original) {
  const auto& status = original.status;
  if (!S_ISREG(status.st_mode)) return "it is not a regular file";
  if (original.text.find('\0') != std::string::npos || !is_utf8(original.text)) return "it is not UTF-8 text";
  if ((status.st_mode & 0222) == 0 || access(original.path.c_str(), W_OK) != 0) return "it is not writable";
  if (status.st_nlink > 1) {
    return fmt::format("it has {} hard links, and the others would keep the old text", status.st_nlink);
  }
  return "";
}

// replace_file() gives the file the mode of a new one, so it does not fit here.
std::string replace_fixed(const OriginalFile& original, const std::string& text) {
  const auto name = printable(original.path.string());
  auto temporary = (original.path.parent_path() / ("." + original.path.filename().string() + ".XXXXXX.tmp")).string();
  UniqueFd fd(mkostemps(temporary.data(), 4, O_CLOEXEC));
  if (!fd) throw system_error(errno, "writing " + name);
  try {
    write_all(fd.value(), text, name);
    struct stat now {};
    if (fstat(fd.value(), &now) != 0) throw system_error(errno, "writing " + name);
    const bool has_other_owner = now.st_uid != original.status.st_uid || now.st_gid != original.status.st_gid;
    if (has_other_owner && fchown(fd.value(), original.status.st_uid, original.status.st_gid) != 0) {
      if (errno != EPERM) throw system_error(errno, "writing " + name + " with its owner");
      unlink(temporary.c_str());
      return "it belongs to another user or group, which the new file could not keep";
    }
    // The mode comes second, because a change of the owner clears the set-user-ID bit.
    if (fchmod(fd.value(), original.status.st_mode & 07777) != 0 || fsync(fd.value()) != 0 ||
        close(fd.release()) != 0) {
      throw system_error(errno, "writing " + name + " with its mode");
    }
    if (lstat(original.path.c_str(), &now) != 0 || !is_unchanged(now, original.status)) {
      throw Error(ErrorCode::kFailedPrecondition, "{} has changed since it was read, so it was not fixed; try again",
                  name);
    }
    if (rename(temporary.c_str(), original.path.c_str()) != 0) throw system_error(errno, "writing " + name);
    return "";
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
}

}  // namespace yoke::cli
