// yoke/cli/cluster/slurm_check_fix.h -- `yoke slurm check --fix`: changes a file without losing anything of it.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace yoke::cli {

/// A file as it was when it was read.
struct OriginalFile {
  std::filesystem::path path;  ///< Without symbolic links.
  struct stat status {};
  std::string text;
};

/// Errors  as errno says, with the name; kInvalidArgument: it is a folder, or too long for `kind`.
OriginalFile read_to_fix(const std::string& file, std::string_view kind);

/// Why the file must not be changed, as a clause; empty: it may be.
std::string why_not_fix(const OriginalFile& original);

/// Replaces the file atomically; mode and owner stay. Returns why it was left as it is, as a clause; empty: it was
/// replaced. Errors  as errno says; kFailedPrecondition: it has changed since it was read.
std::string replace_fixed(const OriginalFile& original, const std::string& text);

}  // namespace yoke::cli
