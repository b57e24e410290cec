// yoke/launch/process/error_folder.h -- the temporary folder of the ranks' error files, which has an owner.
#pragma once

#include <filesystem>

#include "yoke/base/file.h"

namespace yoke::launch {

/// Makes the folder, for this user alone. Returns its lock; as long as that is open, no other launcher removes the
/// folder. The result has no descriptor if the folder cannot be made.
UniqueFd make_error_folder(const std::filesystem::path& folder);

/// Removes from `parent` the folders that make_error_folder() made for this user and that nobody holds any more. Slurm
/// and the kernel's out-of-memory killer may kill a launcher together with its guardian, which then cannot do so.
/// Folders younger than a minute stay, because they may not have their lock yet. Ignores errors.
void remove_abandoned_error_folders(const std::filesystem::path& parent);

}  // namespace yoke::launch
