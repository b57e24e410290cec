#include "yoke/slurm/job/job_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/host.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/contract/variables.h"
#include "yoke/device/process/info.h"

namespace yoke::slurm {

std::optional<std::string> jobs_folder(const Environment& environment) {
  const auto state = user_folder(UserFolder::kState, environment);
  return state ? std::optional((*state / "yoke" / "slurm").string()) : std::nullopt;
}

std::optional<std::string> samples_folder(const Environment& environment) {
  const auto chosen = environment.value_or(variable::kSlurmSamples, "");
  if (chosen == "0") return std::nullopt;
  return chosen.empty() ? jobs_folder(environment) : chosen;
}

std::optional<std::string> read_own_file(const std::filesystem::path& file, size_t max_bytes) {
  try {
    const auto fd = open_regular_file(file);
    struct stat status {};
    if (fstat(fd.value(), &status) != 0 || (geteuid() != 0 && status.st_uid != geteuid())) return std::nullopt;
    if (static_cast<size_t>(status.st_size) > max_bytes) return std::nullopt;
    return text_of(fd);
  } catch (const Error&) {  // it was removed or replaced meanwhile
    return std::nullopt;
  }
}

std::string why_not_own(const std::filesystem::path& file) {
  const auto name = printable(file.string());
  struct stat status {};
  if (lstat(file.c_str(), &status) != 0) {
    return errno == ENOENT ? name + " does not exist any more" : system_error(errno, "reading " + name).what();
  }
  if (!S_ISREG(status.st_mode)) return name + " is no regular file any more";
  if (geteuid() == 0 || status.st_uid == geteuid()) return "";
  return name + " belongs to " + printable(device::user_name(status.st_uid));
}

}  // namespace yoke::slurm
